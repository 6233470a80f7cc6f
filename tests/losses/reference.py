"""Slow float64 references of the losses, in numpy loops, with gradients worked out by hand."""

import numpy as np


def unit(seed, *shape):
    """Returns random float32 vectors of length 1 along the last axis."""
    vectors = np.random.default_rng(seed).normal(size=shape)
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def batch(seed, pairs, width, near=False):
    """Returns image and text, [pairs, width] each; with `near` the texts differ by about 1e-3."""
    text = unit(seed, pairs, width)
    if near:
        text = unit(seed + 2, 1, width) + 1e-3 * text
    image = 0.3 * text + 0.7 * unit(seed + 1, pairs, width)
    image, text = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (image, text))
    return image.astype(np.float32), text.astype(np.float32)


def relative_error(actual, wanted):
    """Returns the largest absolute difference over the largest absolute wanted value."""
    actual, wanted = np.asarray(actual, np.float64), np.asarray(wanted, np.float64)
    assert actual.shape == wanted.shape, (actual.shape, wanted.shape)
    return np.max(np.abs(actual - wanted)) / np.max(np.abs(wanted))


def geometry(text):
    """Returns G with its diagonal set to 0, float64."""
    text = np.asarray(text, np.float64)
    g = text @ text.T
    np.fill_diagonal(g, 0)
    return g


def pair_losses(row_logits, column_logits, same_pair=None):
    """Returns each pair's two cross entropies, their gradients with respect to the two logits."""
    pairs = len(row_logits)
    ids = np.arange(pairs) if same_pair is None else same_pair
    losses, d_row, d_column = (
        np.zeros((pairs, 2)),
        np.zeros_like(row_logits),
        np.zeros_like(row_logits),
    )
    for i in range(pairs):
        shown = [j for j in range(pairs) if j == i or ids[j] != ids[i]]
        row = np.array([np.exp(row_logits[i, j] - row_logits[i, i]) for j in shown])
        column = np.array([np.exp(column_logits[j, i] - column_logits[i, i]) for j in shown])
        losses[i] = np.log(row.sum()), np.log(column.sum())
        for k, j in enumerate(shown):
            d_row[i, j] = (row[k] / row.sum() - (i == j)) / (2 * pairs)
            d_column[j, i] = (column[k] / column.sum() - (i == j)) / (2 * pairs)
    return losses, d_row, d_column


def contrastive(image, text, scale, delta, same_pair=None):
    """Returns loss, (d image, d text, d scale) of symmetric InfoNCE on scale (S + delta)."""
    image, text = np.asarray(image, np.float64), np.asarray(text, np.float64)
    cosines = image @ text.T
    logits = scale * (cosines + delta)
    losses, d_row, d_column = pair_losses(logits, logits, same_pair)
    d_logits = d_row + d_column
    d_cosines = scale * d_logits
    gradients = d_cosines @ text, d_cosines.T @ image, np.sum(d_logits * (cosines + delta))
    return losses.mean(), gradients


def late_interaction(patches, words, word_mask):
    """Returns both score matrices and, for each, its gradient: a list of (i, j, n, l, weight)."""
    patches, words = np.asarray(patches, np.float64), np.asarray(words, np.float64)
    pairs, count = len(patches), patches.shape[1]
    scores, parts = np.zeros((2, pairs, pairs)), ([], [])
    for i in range(pairs):
        for j in range(pairs):
            shown = np.flatnonzero(word_mask[j])
            cosines = patches[i] @ words[j].T
            for n in range(count if len(shown) else 0):
                best = shown[np.argmax(cosines[n, shown])]
                scores[0, i, j] += cosines[n, best] / count
                parts[0].append((i, j, n, best, 1 / count))
            for word in shown:
                best = np.argmax(cosines[:, word])
                scores[1, i, j] += cosines[best, word] / len(shown)
                parts[1].append((i, j, best, word, 1 / len(shown)))
    return scores, parts


def token_interaction(patches, words, word_mask, scale, same_pair=None):
    """Returns loss, (d patches, d words, d scale) of the token term."""
    scores, parts = late_interaction(patches, words, word_mask)
    losses, *d_logits = pair_losses(scale * scores[0], scale * scores[1], same_pair)
    d_patches, d_words = np.zeros(patches.shape), np.zeros(words.shape)
    for d_direction, direction in zip(d_logits, parts, strict=True):
        for i, j, n, word, weight in direction:
            d_patches[i, n] += scale * d_direction[i, j] * weight * words[j, word]
            d_words[j, word] += scale * d_direction[i, j] * weight * patches[i, n]
    d_scale = np.sum(np.stack(d_logits) * scores)
    return losses.mean(), (d_patches, d_words, d_scale)
