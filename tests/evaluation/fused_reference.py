"""What fused scores are, one pair, one query, one caption at a time; and what to try it on."""

import math

import numpy as np

from hnclip_jax.evaluation import fused


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def late_interaction(picture, caption):
    """R of one pair in float64."""
    cosines = caption @ picture.T
    cosines = np.where(cosines > 0, cosines, 0.1 * cosines)
    return cosines.max(axis=1).mean() + cosines.max(axis=0).mean()


def scores(image, text, late):
    """[T, M] float64, row = caption."""
    cosine = unit(text.astype(np.float64)) @ unit(image.astype(np.float64)).T
    tokens = late.image.astype(np.float64), late.text.astype(np.float64)
    inter = [[late_interaction(picture, caption) for picture in tokens[0]] for caption in tokens[1]]
    return (1 - late.weight) * cosine + late.weight * np.array(inter)


def ranks(scores, is_right):
    """(greater, equal, right) of each row's best right column; no two scores are near but equal."""
    rows = []
    for row, right in zip(scores, is_right, strict=True):
        best = row[right].max()
        same = np.abs(row - best) < 1e-12
        near = np.abs(row - best) < 1e-6
        assert (near == same).all(), "the reference cannot tell these scores apart in float32"
        rows.append((((row > best) & ~same).sum(), (same & ~right).sum(), (same & right).sum()))
    return np.array(rows).T


def gathered(parameters, tokens):
    """The aggregated tokens of one picture or caption, [K, D] float64."""
    tokens, out = tokens.astype(np.float64), []
    logits = []
    for token in tokens:
        norm = (token - token.mean()) / np.sqrt(token.var() + 1e-5)
        norm = norm * parameters["norm"]["scale"] + parameters["norm"]["bias"]
        inner = norm @ parameters["fc_in"]["kernel"] + parameters["fc_in"]["bias"]
        inner = [x * 0.5 * (1 + math.erf(x / math.sqrt(2))) for x in inner]
        logits.append(inner @ parameters["fc_out"]["kernel"] + parameters["fc_out"]["bias"])
    for of_one in parameters["scale"] * np.array(logits).T:
        weights = np.exp(of_one - of_one.max())
        out.append(weights @ tokens / weights.sum())
    return out


def random_list(pictures, texts, seed=7, a=3, b=2, width=8):
    """Random embeddings and tokens of pictures and captions that go together, and who owns whom."""
    rng = np.random.default_rng(seed)
    owner = np.concatenate([np.arange(pictures), rng.integers(0, pictures, texts - pictures)])
    rng.shuffle(owner)
    image = unit(rng.standard_normal((pictures, a + 1, width)))
    noise = rng.standard_normal((texts, b + 1, width))
    text = unit(image[owner][:, : b + 1] + 0.4 * noise)
    whole = (x.astype(np.float32) for x in (image[:, 0], text[:, -1]))
    return *whole, owner, fused.Late(image.astype(np.float32), text.astype(np.float32), 0.3)
