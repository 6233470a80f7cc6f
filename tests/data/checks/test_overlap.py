"""Pictures that were encoded anew are found again, near misses are not; for any block size."""

import io

import numpy as np
import pytest
from PIL import Image, ImageDraw

from hnclip_jax.data import images
from hnclip_jax.data.checks import hashes, overlap
from tests.data import drawing

PHOTOS = [drawing.photo(seed) for seed in range(8)]


def take(image, kind="PNG", **options):
    return hashes.Take()(drawing.file(image, kind, **options))


def scaled(image, factor):
    sides = [max(round(side * factor), 1) for side in image.size]
    return image.resize(sides, Image.Resampling.BICUBIC)


@pytest.fixture(scope="module")
def gallery():
    return [take(photo) for photo in PHOTOS]


@pytest.mark.parametrize("quality", [60, 75, 95])
@pytest.mark.parametrize("factor", [0.5, 0.8, 1, 1.7])
def test_a_picture_encoded_anew_is_found(gallery, quality, factor):
    again = [take(scaled(p, factor), "JPEG", quality=quality) for p in reversed(PHOTOS)]
    found = overlap.pictures(again, gallery)
    assert [(match.a, match.b) for match in found] == [(i, 7 - i) for i in range(8)]
    assert {match.kind for match in found} == {overlap.ALIKE}


@pytest.mark.parametrize("kind", ["WEBP", "GIF"])
def test_another_format_is_found(gallery, kind):
    assert [m.b for m in overlap.pictures([take(PHOTOS[3], kind)], gallery)] == [3]


@pytest.mark.parametrize("kind", ["BMP", "PNG", "TIFF"])
def test_equal_pixels_are_the_same(gallery, kind):
    again = [take(PHOTOS[5], kind)]
    assert overlap.pictures(again, gallery) == [overlap.Match(0, 5, overlap.SAME)]


def with_a_patch(photo):
    changed = photo.copy()
    ImageDraw.Draw(changed).rectangle((60, 40, 80, 60), "red")
    return changed


@pytest.mark.parametrize(
    "change",
    [
        with_a_patch,
        lambda photo: photo.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        lambda photo: photo.transpose(Image.Transpose.ROTATE_180),
        lambda photo: photo.crop((0, 0, 130, 120)),
        lambda photo: photo.convert("L").convert("RGB"),
        lambda photo: photo.point(lambda value: min(value + 40, 255)),
        lambda photo: photo.point(lambda value: min(value + 8, 255)),
    ],
    ids=["patch", "mirrored", "upside down", "cut", "grey", "brighter", "a little brighter"],
)
def test_a_near_miss_does_not_match(gallery, change):
    assert overlap.pictures([take(change(photo)) for photo in PHOTOS], gallery) == []


def on_white(colour, left):
    page = Image.new("RGB", (96, 96), "white")
    draw = ImageDraw.Draw(page)
    draw.ellipse((20, 20, 76, 76), "gold")
    draw.rectangle((left, 40, left + 12, 60), colour)
    return page


def test_drawings_on_a_flat_page():
    drawings = [on_white(c, left) for c in ("black", "red", "peru") for left in (26, 40, 54)]
    prints = [take(image) for image in drawings]
    again = [take(scaled(image, 0.8), "JPEG", quality=80) for image in drawings]
    found = overlap.pictures(again, prints)
    assert [(match.a, match.b) for match in found] == [(i, i) for i in range(9)]
    assert overlap.pictures(prints[:3], prints[3:]) == []


def test_what_is_nearly_flat_has_no_bits():
    # Else the hash of a flat surface would be chance.
    for step in (0, 1, 2):
        page = Image.new("RGB", (64, 64), (100, 100, 100))
        for left in range(0, 64, 16):
            page.paste((100 + step,) * 3, (left, 0, left + 8, 64))
        assert take(page).bits == bytes(16)


def test_the_nearest_of_several_is_taken(gallery):
    better = take(PHOTOS[2], "JPEG", quality=90)
    worse = take(PHOTOS[2], "JPEG", quality=15)
    for side, expected in (([worse, better], 1), ([better, worse], 0)):
        assert overlap.pictures([gallery[2]], side)[0].b == expected


def random_prints(count, seed):
    rng = np.random.default_rng(seed)
    thumbnail = rng.bytes(3 * hashes.THUMBNAIL**2)
    base = rng.integers(0, 2, hashes.BITS)
    prints = []
    for number in range(count):
        bits = base.copy()
        bits[rng.choice(hashes.BITS, rng.integers(0, 24), replace=False)] ^= 1
        prints.append(
            hashes.Fingerprint(
                bytes([seed, number % 256]) * 8, np.packbits(bits).tobytes()
            )._replace(thumbnail=thumbnail)
        )
    return prints


@pytest.mark.parametrize("block", [(128, 4096), (3, 5), (1, 1)])
@pytest.mark.parametrize("radius", [0, 6, 12])
def test_radius_and_blocks(block, radius, monkeypatch):
    monkeypatch.setattr(overlap, "_BLOCK", block)
    a, b = random_prints(40, 1), random_prints(30, 1)
    b = [print_._replace(digest=b"b" + print_.digest[1:]) for print_ in b]

    def bits(side):
        return np.unpackbits([np.frombuffer(print_.bits, np.uint8) for print_ in side], axis=1)

    distance = (bits(a)[:, None] != bits(b)[None]).sum(axis=-1)
    found = overlap.pictures(a, b, radius=radius)
    assert [m.a for m in found] == np.flatnonzero((distance <= radius).any(axis=1)).tolist()
    assert all(distance[m.a, m.b] <= radius for m in found)


def test_progress_ends_at_all_of_a(gallery):
    seen = []
    overlap.pictures(random_prints(300, 2), gallery, progress=lambda *at: seen.append(at))
    assert seen == [(128, 300), (256, 300), (300, 300)]


def test_what_cannot_be_decoded_matches_nothing(gallery):
    broken = hashes.Take()(b"no picture")
    assert "no picture format" in broken.fault
    assert overlap.pictures([broken, gallery[1]], [broken, gallery[1]]) == [
        overlap.Match(1, 1, overlap.SAME)
    ]
    assert overlap.pictures([], gallery) == overlap.pictures(gallery, []) == []


def test_a_fingerprint_does_not_depend_on_the_way_to_the_pixels():
    path = io.BytesIO(drawing.file(PHOTOS[0], "PNG"))
    assert hashes.fingerprint(images.decode(path.getvalue())) == take(PHOTOS[0], "BMP")


@pytest.mark.parametrize(
    ("a", "b", "kind"),
    [
        ("A red kite.", "A red kite.", overlap.SAME),
        ("A red kite.", "a red  kite", overlap.ALIKE),
        ("A red kite!", "'A' red-kite", overlap.ALIKE),
        ("Caf\u00e9", "cafe\u0301", overlap.ALIKE),
        ("\uff21 red kite", "a red kite", overlap.ALIKE),
        ("A red kite.", "A red bike.", None),
        ("A red kite.", "A redkite.", None),
        ("!", "?", None),
        ("", "", None),
    ],
)
def test_captions(a, b, kind):
    found = overlap.captions(["other", a], ["more", b, b])
    assert found == ([overlap.Match(1, 1, kind)] if kind else [])
