"""What the boost would be: numbers against loops in double precision, words by the rules."""

import math

import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.analysis import boost


def unit(count, seed, width=8):
    rows = np.random.default_rng(seed).normal(size=(count, width))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def slow_losses(image, text, ids, scale, gamma):
    """Each pair's loss, mean of both directions; pairs of equal ids are no negatives."""
    image, text = image.astype(np.float64), text.astype(np.float64)
    pairs = range(len(text))

    def logit(i, j):
        return scale * (image[i] @ text[j] + (gamma * text[i] @ text[j] if i != j else 0.0))

    def loss(own, others):
        return math.log1p(sum(math.exp(other - own) for other in others))

    losses = []
    for i in pairs:
        others = [j for j in pairs if ids[j] != ids[i]]
        row = loss(logit(i, i), [logit(i, j) for j in others])
        column = loss(logit(i, i), [logit(j, i) for j in others])
        losses.append((row + column) / 2)
    return np.array(losses)


@pytest.fixture(scope="module")
def pictures():
    """Captions and pictures near to them, two captions of each; some rows are solved."""
    text = unit(60, 0)
    owner = np.random.default_rng(2).permutation(np.arange(60) // 2)
    image = np.stack([text[owner == picture].sum(axis=0) for picture in range(30)])
    image += 0.2 * np.random.default_rng(1).normal(size=image.shape)
    image /= np.linalg.norm(image, axis=1, keepdims=True)
    return image.astype(np.float32), text, owner


def count(pictures, size=12, **other):
    image, text, owner = pictures
    given = {"scale": 30.0, "gamma": 0.5, "size": size, "seed": 3, **other}
    return boost.count_solved(image, text, owner, owner, **given)


@pytest.mark.parametrize("size", [12, 25, 60])
def test_solved_rows(pictures, size):
    image, text, owner = pictures
    found = count(pictures, size)
    order = np.random.default_rng(3).permutation(60)
    batches = [order[low : low + size] for low in range(0, 60 - size + 1, size)]
    assert (found.batches, found.pairs) == (len(batches), size)
    losses = {
        gamma: [
            slow_losses(image[owner[rows]], text[rows], owner[rows], 30.0, gamma)
            for rows in batches
        ]
        for gamma in (0.0, 0.5)
    }
    shares = [np.mean(one < 1e-3) for one in losses[0.0]]
    assert 0 < np.mean(shares) < 1
    assert found.plain == pytest.approx(np.mean(shares), abs=1e-6)
    assert found.boosted == pytest.approx(np.mean(np.array(losses[0.5]) < 1e-3), abs=1e-6)
    assert found.boosted != found.plain
    assert found.info_nce == pytest.approx(np.mean(losses[0.0]), rel=1e-4)
    if len(batches) == 1:
        assert math.isnan(found.error)
    else:
        spread = math.sqrt(sum((s - np.mean(shares)) ** 2 for s in shares) / (len(shares) - 1))
        assert found.error == pytest.approx(spread / math.sqrt(len(shares)), abs=1e-6)
        assert (found.error > 0) == (len(set(shares)) > 1)


def test_pairs_of_one_picture_are_no_negatives(pictures):
    image, text, owner = pictures
    apart = boost.count_solved(
        image, text, owner, np.arange(60), scale=30.0, gamma=0.5, size=60, seed=3
    )
    assert apart.plain < count(pictures, 60).plain


def test_the_seed_says_which_batches(pictures):
    assert count(pictures, 7) == count(pictures, 7)
    assert count(pictures, 7) != count(pictures, 7, seed=4)


def test_at_most_so_many_batches(pictures, monkeypatch):
    monkeypatch.setattr(boost, "BATCHES", 2)
    assert count(pictures, 12).batches == 2


def test_a_short_list_is_one_batch(pictures):
    found = count(pictures, 100)
    assert (found.batches, found.pairs) == (1, 60)


def test_one_pair_is_no_batch():
    rows = unit(1, 0)
    with pytest.raises(types.UserError, match="at least 2 pairs"):
        boost.count_solved(
            rows, rows, np.zeros(1, int), np.zeros(1, int), scale=1.0, gamma=0.5, size=4, seed=0
        )


def solved(plain, boosted=0.0, error=0.01, batches=20):
    return boost.Solved(plain, error, boosted, 0.1, batches, 128)


def told(mean=0.5, std=0.1, gamma=0.5, scale=100.0, **of_solved):
    rows = solved(**of_solved) if of_solved else None
    return boost.predict(mean, std, scale=scale, gamma=gamma, solved=rows).text().splitlines()


def test_parts_in_logits():
    found = boost.predict(0.8, 0.05, scale=100.0, gamma=0.5)
    assert (found.constant, found.adaptive) == pytest.approx((40, 2.5))
    assert found.constant_share == pytest.approx(1600 / 1606.25)
    assert found.to_json()["constant_share"] == found.constant_share
    assert found.to_json()["solved"] is None
    lines = found.text().splitlines()
    assert lines[0].startswith("At s = 100 and gamma = 0.5 the boost adds 40.00 logits to a neg")
    assert "one standard deviation between negatives is 2.50 logits" in lines[0]


def test_json_holds_the_solved_rows():
    found = boost.predict(0.8, 0.05, scale=100.0, gamma=0.5, solved=solved(0.3))
    assert found.to_json()["solved"] == {
        "plain": 0.3,
        "error": 0.01,
        "boosted": 0.0,
        "info_nce": 0.1,
        "batches": 20,
        "pairs": 128,
    }


@pytest.mark.parametrize(
    ("mean", "std", "part"),
    [
        (0.3, 0.0999, "Most of it is a constant margin (the part that all negatives share is 90.0"),
        (0.3, 0.1001, "It is a constant margin and a choice among negatives (the part that all"),
        (0.3, 0.2999, "It is a constant margin and a choice among negatives (the part that all"),
        (0.3, 0.3001, "Most of it differs between negatives (the part that all negatives share is"),
        (-0.5, 0.1, "Most of it is a constant margin (the part that all negatives share is 96.2%"),
        (0.0, 0.1, "Most of it differs between negatives (the part that all negatives share is 0."),
        (0.5, 0.0, "Most of it is a constant margin (the part that all negatives share is 100.0%"),
    ],
)
def test_how_much_is_a_constant_margin(mean, std, part):
    assert told(mean, std)[1].startswith(part)


@pytest.mark.parametrize(
    ("std", "gamma", "hardly", "factor"),
    [
        (0.002, 0.5, True, "1.1"),
        (0.0021, 0.5, False, "1.1"),
        (0.1, 0.5, False, "148"),
        (0.1, -0.5, False, "0.0067"),
        (0.0001, -0.5, True, "1"),
        (0.25, 0.5, False, "268,337"),
        (0.5, 0.5, False, "over a million"),
        (0.5, 100.0, False, "over a million"),
    ],
)
def test_what_the_adaptive_part_does(std, gamma, hardly, factor):
    line = told(std=std, gamma=gamma)[2]
    assert line.startswith("It hardly chooses among negatives") == hardly
    assert line.endswith(f"weighs {factor} times as much.")


@pytest.mark.parametrize(
    ("plain", "part"),
    [
        (0.97, "it has little gradient left, and the boost is made for this."),
        (0.5, "it has little gradient left, and the boost is made for this."),
        (0.4999, "these give it little gradient, and the others still do."),
        (0.1, "these give it little gradient, and the others still do."),
        (0.0999, "nearly all rows still give it gradient, so the boost is not needed for that."),
        (0.0, "nearly all rows still give it gradient, so the boost is not needed for that."),
    ],
)
def test_what_is_left_for_info_nce(plain, part):
    line = told(plain=plain, boosted=0.02)[3]
    assert line.startswith(f"Plain InfoNCE has solved {plain:.1%} +- 1.0% of the rows (loss below")
    assert "(loss below 0.001; 20 batches of 128 pairs): " in line
    assert f"{part} With the boost 2.0% of the rows would be solved." in line


@pytest.mark.parametrize(
    ("plain", "boosted", "still"),
    [(0.9, 0.5, True), (0.9, 0.49, False), (0.4, 0.6, False)],
)
def test_what_the_boost_leaves_solved(plain, boosted, still):
    line = told(plain=plain, boosted=boosted)[3]
    end = ": at gamma = 0.5 most rows stay without gradient." if still else "."
    assert line.endswith(f" With the boost {boosted:.1%} of the rows would be solved{end}")


def test_one_batch_has_no_standard_error():
    line = told(plain=0.3, error=math.nan, batches=1)[3]
    assert line.startswith("Plain InfoNCE has solved 30.0% of the rows (loss below 0.001; 1 batch ")


def test_without_pictures():
    line = told()[3]
    assert line.startswith("How many rows InfoNCE has solved is not known without pictures")


def test_without_a_boost():
    lines = told(gamma=0.0, plain=0.3, boosted=0.3)
    assert lines[0] == "With gamma = 0 there is no boost."
    assert lines[1].endswith("these give it little gradient, and the others still do.")
    assert len(lines) == 2
    assert math.isnan(boost.predict(0.5, 0.1, scale=100.0, gamma=0.0).constant_share)
