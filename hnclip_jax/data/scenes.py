"""The built-in dense-caption data set: drawn pictures, and captions that name every object.

Nothing is downloaded: a seed gives scenes, and a scene gives a picture and a caption. Part of the
scenes come in families of four that differ in one attribute of one object. Their captions are
near-duplicates, as in the dense-caption benchmarks, and a model has to tell them apart.
"""

import dataclasses
import functools
import json
import math
import pathlib
import random
import tempfile
from collections.abc import Callable, Iterator

import numpy as np
from PIL import Image, ImageChops, ImageColor, ImageDraw, ImageFilter, ImageOps

from hnclip_jax import types

FORMAT = 1  # Goes up whenever the same arguments give other pictures or captions.


def _symmetric(right_half: str) -> tuple:
    half = [tuple(float(n) for n in point.split(",")) for point in right_half.split()]
    return (*half, *((-x, y) for x, y in reversed(half)))


def _arc(start: float, stop: float, radius: float = 1.0, x: float = 0.0) -> tuple:
    angles = [math.radians(start + (stop - start) * step / 48) for step in range(49)]
    return tuple((x + radius * math.cos(a), radius * math.sin(a)) for a in angles)


def _colours(pairs: str) -> dict[str, tuple]:
    return {name: ImageColor.getrgb(code) for name, code in map(str.split, pairs.split(","))}


# Outlines in a square from -1 to 1, y downwards; a crescent's angles are where its circles meet.
SHAPES = {
    "circle": _arc(0, 360),
    "square": _symmetric(".85,-.85 .85,.85"),
    "triangle": _symmetric("0,-.95 1,.85"),
    "diamond": _symmetric("0,-1 .8,0 0,1"),
    "star": _symmetric("0,-.95 .33,-.35 .98,-.26 .53,.25 .61,.92 0,.64"),
    "heart": _symmetric("0,-.4 .12,-.62 .3,-.76 .55,-.8 .8,-.7 .96,-.48 1,-.2 .9,.1 .65,.4 0,1"),
    "cross": _symmetric(".38,-1 .38,-.38 1,-.38 1,.38 .38,.38 .38,1"),
    "ring": _arc(0, 360) + _arc(360, 0, radius=0.42),
    "crescent": _arc(48.35, 311.65) + _arc(274.94, 85.06, radius=0.75, x=0.6),
    "arrow": _symmetric("0,-1 .9,-.05 .38,-.05 .38,1"),
}
COLOURS = _colours(
    "red #e21e1e, orange #ff9100, yellow #fce21e, green #19a037, turquoise #28d0d0, "
    "blue #2350eb, purple #8c2dc3, pink #ff78be, brown #915226, grey #8c8c8c"
)
BACKGROUNDS = _colours("white #ffffff, cream #faeec3, mint #c8f2d6, lilac #ded4f8, peach #ffd6be")
TEXTURES = ("plain", "striped", "dotted", "checked", "framed")
SIZES = {"large": 0.94, "medium": 0.77, "small": 0.6}  # Width as a share of a cell.
PLACES = tuple(f"{y} {x}" for y in ("top", "middle", "bottom") for x in ("left", "centre", "right"))
# What the members of a family may differ in; there are too few sizes for that.
FAMILY_VALUES = {"shape": SHAPES, "colour": COLOURS, "texture": TEXTURES, "place": PLACES}

_FAMILY = 4
_INK = (20, 20, 20)
_SUPERSAMPLE = 4  # Drawn larger and averaged down, so that shapes show in few pixels.

# {0} and {2} are objects, {1} and {3} their places. Few objects get long sentences and many short
# ones, so that every caption has 40 to 70 CLIP tokens.
_OPENINGS = ("the background is {}.", "{} is the background.")
_SINGLE = (
    "there is {0} in the {1}.",
    "in the {1} there is {0}.",
    "the {1} of the picture holds {0}.",
)
_DOUBLE = (
    "{0} is in the {1} and {2} in the {3}.",
    "in the {1} is {0} and in the {3} {2}.",
    "the {1} holds {0} and the {3} {2}.",
)


@dataclasses.dataclass(frozen=True)
class Object:
    """One drawn object: names out of SHAPES, COLOURS, TEXTURES, SIZES and PLACES."""

    shape: str
    colour: str
    texture: str
    size: str
    place: str


@dataclasses.dataclass(frozen=True)
class Scene:
    """A picture before it is drawn.

    objects: three to six, no two in one place, in the order of the caption: large ones first.
    wording: seed of the sentence forms; the same for all members of a family.
    family: number within its list; the four scenes of a family, or a single scene, share one.
    """

    background: str
    objects: tuple[Object, ...]
    wording: int
    family: int


def make(
    seed: int, train: int, test_families: int, family_share: float
) -> tuple[list[Scene], list[Scene]]:
    """Returns the training scenes and the test scenes; no picture or caption occurs twice.

    The test scenes depend on `seed` and `test_families` alone, not on the training set.

    Args:
      seed: any integer.
      train: number of training scenes.
      test_families: number of families of four in the test list, which holds nothing else.
      family_share: share of the training scenes that come in families of four, 0 to 1.

    Raises:
      types.UserError: for a number out of range.
    """
    if train < 1 or test_families < 1 or not 0 <= family_share <= 1:
        raise types.UserError(
            f"train is {train}, test_families {test_families}, family_share {family_share}; "
            "scenes need train >= 1, test_families >= 1 and family_share from 0 to 1"
        )
    seen: set = set()
    test_rng, train_rng = (random.Random(f"scenes {seed} {split}") for split in ("test", "train"))
    test = list(_families(test_rng, [_FAMILY] * test_families, seen))
    fours = int(train * family_share) // _FAMILY
    counts = [_FAMILY] * fours + [1] * (train - _FAMILY * fours)
    train_rng.shuffle(counts)
    return list(_families(train_rng, counts, seen)), test


def _families(rng: random.Random, counts: list[int], seen: set) -> Iterator[Scene]:
    """Yields families of the given sizes whose pictures are not in `seen`, and notes them there."""
    for family, count in enumerate(counts):
        pictures: set = set()
        # A caption names all of this, so other pictures have other captions.
        while not pictures or pictures & seen:
            members = _vary(rng, _random_scene(rng, family), count)
            pictures = {(scene.background, frozenset(scene.objects)) for scene in members}
        seen |= pictures
        yield from members


def _random_scene(rng: random.Random, family: int) -> Scene:
    tables = [tuple(table) for table in (SHAPES, COLOURS, TEXTURES, SIZES)]
    places = rng.sample(PLACES, rng.randint(3, 6))
    objects = [Object(*(rng.choice(table) for table in tables), place) for place in places]
    objects.sort(key=lambda item: -SIZES[item.size])
    return Scene(rng.choice(tuple(BACKGROUNDS)), tuple(objects), rng.getrandbits(32), family)


def _vary(rng: random.Random, scene: Scene, count: int) -> list[Scene]:
    """Returns `scene` and `count` - 1 others that differ in one attribute of one object."""
    attribute, values = rng.choice(tuple(FAMILY_VALUES.items()))
    at = rng.randrange(len(scene.objects))
    original = getattr(scene.objects[at], attribute)
    taken = {item.place for item in scene.objects} if attribute == "place" else {original}
    chosen = [original, *rng.sample([value for value in values if value not in taken], count - 1)]
    rng.shuffle(chosen)
    before, after = scene.objects[:at], scene.objects[at + 1 :]
    changed = [dataclasses.replace(scene.objects[at], **{attribute: value}) for value in chosen]
    return [dataclasses.replace(scene, objects=(*before, item, *after)) for item in changed]


def describe(scene: Scene) -> str:
    """Returns the caption: several sentences that name the background and every object."""
    rng = random.Random(scene.wording)
    at_once = 1 if len(scene.objects) <= 4 else 2
    sentences = [rng.choice(_OPENINGS).format(scene.background)]
    for first in range(0, len(scene.objects), at_once):
        words = []
        for item in scene.objects[first : first + at_once]:
            words += [f"a {item.size} {item.texture} {item.colour} {item.shape}", item.place]
        sentences.append(rng.choice(_SINGLE if len(words) == 2 else _DOUBLE).format(*words))
    return " ".join(sentence[0].upper() + sentence[1:] for sentence in sentences)


def draw(scene: Scene, size: int) -> np.ndarray:
    """Returns the picture of `scene`, uint8 [size, size, 3]."""
    side = size * _SUPERSAMPLE
    canvas = Image.new("RGB", (side, side), BACKGROUNDS[scene.background])
    for item in scene.objects:
        width = round(SIZES[item.size] * side / 3)
        row, column = divmod(PLACES.index(item.place), 3)
        corner = [round((cell + 0.5) * side / 3 - width / 2) for cell in (column, row)]
        whole, inked = _masks(item.shape, item.texture, width, side // 48)
        canvas.paste(COLOURS[item.colour], corner, whole)
        canvas.paste(_INK, corner, inked)
    return np.array(canvas.reduce(_SUPERSAMPLE))


@functools.cache
def _masks(shape: str, texture: str, width: int, unit: int) -> tuple[Image.Image, Image.Image]:
    """Returns two masks, [width, width]: the shape, and the part of it that the texture inks.

    `unit` is a forty-eighth of the picture: the patterns fall on the grid of 48 x 48 pixels.
    """
    whole = Image.new("L", (width, width))
    corners = (np.array(SHAPES[shape]) + 1) * (width - 1) / 2
    ImageDraw.Draw(whole).polygon(corners.ravel().tolist(), fill=255)
    if texture == "framed":
        rim = round(width / 14)
        # Padded, or the filter would see no edge where the shape meets the border of the mask.
        inner = ImageOps.expand(whole, rim).filter(ImageFilter.MinFilter(2 * rim + 1))
        return whole, ImageChops.subtract(whole, ImageOps.crop(inner, rim))
    y, x = (np.mgrid[:width, :width] + 0.5 - width / 2) / unit
    pattern = {
        "plain": np.zeros_like(x),
        "striped": y % 4 < 2,
        "dotted": np.hypot(x % 4 - 2, y % 4 - 2) < 1.3,
        "checked": (x % 6 < 3) ^ (y % 6 < 3),
    }[texture]
    return whole, ImageChops.multiply(whole, Image.fromarray(pattern.astype(np.uint8) * 255))


def write(
    out_dir: str | pathlib.Path,
    *,
    seed: int = 0,
    train: int = 20_000,
    test_families: int = 300,
    family_share: float = 0.4,
    size: int = 48,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[pathlib.Path, pathlib.Path]:
    """Returns the paths of the training list and the test list, drawing the set if need be.

    The folder holds `train/00000.png` ..., `test/...`, the lists `train.json` and `test.json` (JSON
    arrays of {"filename", "caption", "family"}) and `scenes.json` with the arguments. It appears
    whole or not at all; a folder that holds the set of the same arguments is used as it is.

    Args:
      out_dir: the folder.
      seed: as in `make`; so are train, test_families and family_share.
      size: pixels on a side of each picture.
      progress: called after every picture with the numbers of pictures drawn and to draw.

    Raises:
      types.UserError: if the folder holds anything else, or for an argument out of range.
    """
    if size < 24:
        raise types.UserError(f"size is {size} pixels; textures need 24 or more")
    arguments = {"format": FORMAT, "seed": seed, "train": train, "test_families": test_families}
    arguments |= {"family_share": family_share, "size": size}
    out_dir = pathlib.Path(out_dir).resolve()
    if not _holds(out_dir, arguments):
        scenes = make(seed, train, test_families, family_share)
        out_dir.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out_dir.parent, prefix=".scenes-") as closed:
            # One folder further down, because other users may not enter the temporary one.
            draft = pathlib.Path(closed, "set")
            _draw_all(draft, scenes, size, progress or (lambda done, total: None))
            (draft / "scenes.json").write_text(json.dumps(arguments, indent=2))
            try:
                draft.rename(out_dir)
            except OSError:
                # Another process may have put the same set there meanwhile.
                if not _holds(out_dir, arguments):
                    raise
    return out_dir / "train.json", out_dir / "test.json"


def _draw_all(folder: pathlib.Path, scenes: tuple, size: int, progress: Callable) -> None:
    done, total = 0, sum(map(len, scenes))
    for split, members in zip(("train", "test"), scenes, strict=True):
        (folder / split).mkdir(parents=True)
        records = []
        for index, scene in enumerate(members):
            name = f"{split}/{index:05d}.png"
            Image.fromarray(draw(scene, size)).save(folder / name)
            records.append({"filename": name, "caption": describe(scene), "family": scene.family})
            progress(done := done + 1, total)
        (folder / f"{split}.json").write_text(json.dumps(records, indent=1))


def _holds(folder: pathlib.Path, arguments: dict) -> bool:
    """Returns whether the set is in `folder`; False if that is missing or empty, else an error."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    try:
        found = json.loads((folder / "scenes.json").read_text())
        other = [name for name in arguments if found[name] != arguments[name]]
    except (OSError, ValueError, KeyError, TypeError):
        raise types.UserError(
            f"{folder} is in use and holds no set of drawn scenes; choose another --out"
        ) from None
    if other:
        there = ", ".join(f"{name}={found[name]}" for name in other)
        asked = ", ".join(f"{name}={arguments[name]}" for name in other)
        raise types.UserError(
            f"{folder} holds a set with {there}, not {asked}; choose another --out or delete it"
        )
    return True
