"""Slow float64 references of the baselines, in plain loops over exponentials, and their gradients.

`fixed` is what no gradient flows through: (image, text, scale) as they were before a difference was
taken; None means the same as the arguments.
"""

import numpy as np

from tests.losses import reference


def gradients(loss, image, text, scale, *others, step=1e-6):
    """Returns the central differences of loss(image, text, scale, *others, fixed=...)."""
    arrays = [np.asarray(x, np.float64) for x in (image, text, scale, *others)]
    found = []
    for number, array in enumerate(arrays):
        found.append(np.zeros(array.shape))
        for place in np.ndindex(array.shape):
            ends = []
            for sign in (1, -1):
                moved = [x.copy() for x in arrays]
                moved[number][place] += sign * step
                ends.append(loss(*moved, fixed=tuple(arrays[:3])))
            found[-1][place] = (ends[0] - ends[1]) / (2 * step)
    return tuple(found)


def exact(loss, *arrays):
    """Returns `loss` of float64 copies."""
    return loss(*(np.asarray(x, np.float64) for x in arrays))


def others_of(i, pairs, ids):
    return [j for j in range(pairs) if j != i and (ids is None or ids[i] != ids[j])]


def both(image, text):
    """Returns S and its transpose, the scores of either direction's queries by row."""
    return image @ text.T, text @ image.T


def siglip(image, text, scale, *, bias, gamma=0.0, ids=None, fixed=None):
    s, g = image @ text.T, reference.geometry(text if fixed is None else fixed[1])
    total = 0.0
    for i in range(len(s)):
        total += np.log1p(np.exp(-scale * s[i, i] - bias))
        for j in others_of(i, len(s), ids):
            total += np.log1p(np.exp(scale * (s[i, j] + gamma * g[i, j]) + bias))
    return total / len(s)


def cyclip(image, text, scale, *, cross, within, ids=None, fixed=None):
    s, pairs = image @ text.T, len(image)
    total = 0.0
    for i in range(pairs):
        for j in range(pairs):
            total += cross * (s[i, j] - s[j, i]) ** 2 / pairs
            total += within * (image[i] @ image[j] - text[i] @ text[j]) ** 2 / pairs
    return total + soft_targets(image, text, scale, share=0.0, temperature=1.0, ids=ids)


def soft_targets(image, text, scale, *, share, temperature, ids=None, fixed=None):
    given = text if fixed is None else fixed[1]
    total, pairs = 0.0, len(image)
    for scores in both(image, text):
        for i in range(pairs):
            seen = [i, *others_of(i, pairs, ids)]
            likeness = np.exp([given[i] @ given[j] / temperature for j in seen])
            target = share * likeness / likeness.sum()
            target[0] += 1 - share
            p = np.exp(scale * scores[i, seen]) / np.exp(scale * scores[i, seen]).sum()
            total -= target @ np.log(p)
    return total / (2 * pairs)


def weighted(scores, scale, beta, i, others):
    """Returns the weights of the negatives of a row."""
    weights = np.exp(beta * scale * scores[i, others])
    return len(others) * weights / weights.sum()


def hn_nce(image, text, scale, *, alpha, beta, detach=False, ids=None, fixed=None):
    before = fixed if detach and fixed is not None else (image, text, scale)
    total = 0.0
    for scores, given in zip(both(image, text), both(*before[:2]), strict=True):
        for i in range(len(scores)):
            if others := others_of(i, len(scores), ids):
                weights = weighted(given, before[2], beta, i, others)
                rest = weights @ np.exp(scale * scores[i, others])
                total += np.log(alpha + rest / np.exp(scale * scores[i, i]))
    return total / (2 * len(image))


def hcl(image, text, scale, *, beta, prior, ids=None, fixed=None):
    total = 0.0
    for scores in both(image, text):
        for i in range(len(scores)):
            if others := others_of(i, len(scores), ids):
                weights = weighted(scores, scale, beta, i, others)
                positive = np.exp(scale * scores[i, i])
                rest = weights @ np.exp(scale * scores[i, others])
                rest = (rest - len(others) * prior * positive) / (1 - prior)
                rest = max(rest, len(others) * np.exp(-scale))
                total += np.log1p(rest / positive)
    return total / (2 * len(image))


def vse(image, text, scale, *, margin, hardest=True, ids=None, fixed=None):
    total = 0.0
    for scores in both(image, text):
        for i in range(len(scores)):
            hinges = [
                max(0.0, margin + scores[i, j] - scores[i, i])
                for j in others_of(i, len(scores), ids)
            ]
            total += max(hinges, default=0.0) if hardest else sum(hinges)
    return total / len(image)


def negclip(image, text, scale, negative, *, there, ids=None, fixed=None):
    total, pairs = 0.0, len(image)
    for direction, scores in enumerate(both(image, text)):
        for i in range(pairs):
            logits = [scores[i, j] - scores[i, i] for j in others_of(i, pairs, ids)]
            if direction == 0:
                logits += [image[i] @ negative[k] - scores[i, i] for k in np.flatnonzero(there)]
            total += np.log1p(np.sum(np.exp(scale * np.array(logits))))
    return total / (2 * pairs)
