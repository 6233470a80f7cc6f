"""The drawn set: what its captions say, what its pictures show, and what lies in its folder."""

import dataclasses
import itertools
import json
import random
import re

import numpy as np
import pytest
from PIL import Image

from hnclip_jax import types
from hnclip_jax.data import scenes

ATTRIBUTES = ("shape", "colour", "texture", "place")
SMALL = {"train": 12, "test_families": 2, "family_share": 0.7}


@pytest.fixture(scope="module")
def made():
    return scenes.make(seed=3, train=400, test_families=60, family_share=0.5)


def families(members):
    groups = {}
    for scene in members:
        groups.setdefault(scene.family, []).append(scene)
    return list(groups.values())


def difference(one, other):
    """The (object number, attribute) pairs in which two scenes of a family differ."""
    assert (one.background, one.wording) == (other.background, other.wording)
    return [
        (number, field.name)
        for number, pair in enumerate(zip(one.objects, other.objects, strict=True))
        for field in dataclasses.fields(scenes.Object)
        if getattr(pair[0], field.name) != getattr(pair[1], field.name)
    ]


def single(background="white", **attributes):
    plain = {"shape": "circle", "colour": "red", "texture": "plain", "size": "small"}
    item = scenes.Object(**{**plain, "place": "middle centre", **attributes})
    return scenes.draw(scenes.Scene(background, (item,), 0, 0), 48)


def cell_of(place):
    rows, columns = ("top", "middle", "bottom"), ("left", "centre", "right")
    row, column = place.split()
    top, left = 16 * rows.index(row), 16 * columns.index(column)
    return slice(top, top + 16), slice(left, left + 16)


def test_the_tables_are_rich_enough():
    assert len(scenes.COLOURS) >= 10
    assert len(scenes.SHAPES) >= 8
    assert len(scenes.SIZES) == 3
    assert len(scenes.TEXTURES) >= 4
    assert len(set(scenes.PLACES)) == 9


def test_equal_seeds_give_equal_scenes_and_others_do_not(made):
    assert scenes.make(3, 400, 60, 0.5) == made
    assert scenes.make(4, 400, 60, 0.5)[1] != made[1]
    # The test scenes do not depend on the training set.
    assert scenes.make(3, 40, 60, 0.0)[1] == made[1]


def test_counts_and_family_sizes(made):
    train, test = made
    assert [len(group) for group in families(test)] == [4] * 60
    sizes = [len(group) for group in families(train)]
    assert sizes.count(4) == 50
    assert sizes.count(1) == 200
    assert len(sizes) == 250


@pytest.mark.parametrize(("share", "in_families"), [(0.0, 0), (1.0, 40), (0.25, 8)])
def test_family_share(share, in_families):
    train, _ = scenes.make(0, train=41, test_families=1, family_share=share)
    assert len(train) == 41
    assert sum(len(group) for group in families(train) if len(group) == 4) == in_families


def test_objects_lie_in_distinct_cells_and_large_ones_come_first(made):
    order = list(scenes.SIZES)
    for scene in made[0] + made[1]:
        assert 3 <= len(scene.objects) <= 6
        assert len({item.place for item in scene.objects}) == len(scene.objects)
        ranks = [order.index(item.size) for item in scene.objects]
        assert ranks == sorted(ranks)
    assert {len(scene.objects) for scene in made[0]} == {3, 4, 5, 6}


def test_family_members_differ_in_one_attribute_of_one_object(made):
    changed = set()
    for group in families(made[1]):
        (number, attribute), *rest = {
            found for pair in itertools.combinations(group, 2) for found in difference(*pair)
        }
        assert not rest
        assert len({getattr(scene.objects[number], attribute) for scene in group}) == 4
        changed.add(attribute)
    assert changed == set(ATTRIBUTES)


def test_captions_of_a_family_differ_only_in_the_changed_words(made):
    for group in families(made[1]):
        for one, other in itertools.combinations(group, 2):
            [(_, attribute)] = difference(one, other)
            words = [scenes.describe(scene).split() for scene in (one, other)]
            different = [pair for pair in zip(*words, strict=True) if pair[0] != pair[1]]
            assert 1 <= len(different) <= (2 if attribute == "place" else 1)


def test_captions_name_every_object_with_its_place(made):
    phrase = re.compile(r"a (?:large|medium|small) \w+ \w+ \w+")
    place = re.compile("|".join(scenes.PLACES))
    forms = set()
    for scene in made[0] + made[1]:
        caption = scenes.describe(scene)
        assert caption.count(".") >= 4
        assert scene.background in caption.lower()
        named = phrase.findall(caption.lower()), place.findall(caption.lower())
        assert list(zip(*named, strict=True)) == [
            (f"a {item.size} {item.texture} {item.colour} {item.shape}", item.place)
            for item in scene.objects
        ]
        forms |= set(place.sub("P", phrase.sub("O", caption.lower())).split(". ")[1:-1])
    assert len(forms) == len(scenes._SINGLE + scenes._DOUBLE)


def test_captions_have_40_to_70_tokens():
    tokenizer = pytest.importorskip("instant_clip_tokenizer").Tokenizer()
    train, test = scenes.make(0, train=2000, test_families=100, family_share=0.5)
    counts = [len(tokenizer.encode(scenes.describe(scene))) + 2 for scene in train + test]
    assert min(counts) >= 40
    assert max(counts) <= 70


def test_nothing_occurs_twice(made):
    both = made[0] + made[1]
    assert len({scenes.describe(scene) for scene in both}) == len(both)
    assert len({(scene.background, frozenset(scene.objects)) for scene in both}) == len(both)


def test_a_picture_that_was_made_before_is_replaced():
    seen = set()
    first, again = (list(scenes._families(random.Random(0), [4, 1, 4], seen)) for _ in range(2))
    assert len(first) == len(again) == 9
    assert not {scene.objects for scene in first} & {scene.objects for scene in again}


@pytest.mark.parametrize("place", scenes.PLACES)
def test_an_object_stays_inside_its_cell(place):
    rows, columns = cell_of(place)
    picture = single(shape="square", size="large", texture="plain", place=place)
    assert (picture[rows, columns][8, 8] == scenes.COLOURS["red"]).all()
    picture[rows, columns] = 255
    assert (picture == 255).all()


@pytest.mark.parametrize("size", [24, 48, 50, 96])
def test_pictures_have_the_size_asked_for(made, size):
    assert scenes.draw(made[1][0], size).shape == (size, size, 3)


def test_sizes_cover_ever_more_pixels():
    covered = [(single(size=name) != 255).any(axis=-1).sum() for name in scenes.SIZES]
    assert covered[0] > 1.3 * covered[1] > 1.3 * 1.3 * covered[2]


@pytest.mark.parametrize("attribute", ["shape", "colour", "texture"])
def test_values_are_told_apart_even_on_small_objects(attribute):
    values = scenes.FAMILY_VALUES
    others = [
        [(name, value) for value in values[name]] for name in ATTRIBUTES[:3] if name != attribute
    ]
    for rest in itertools.product(*others):
        pictures = [single(**{attribute: value}, **dict(rest)) for value in values[attribute]]
        for one, other in itertools.combinations(pictures, 2):
            # At least six clearly different pixels of the about seventy of a small object.
            far = np.abs(one.astype(int) - other).max(axis=-1) > 50
            assert far.sum() >= 6, (attribute, rest)


def test_pictures_of_a_family_differ_in_the_changed_cells_alone(made):
    for group in families(made[1]):
        for one, other in itertools.combinations(group, 2):
            [(number, _)] = difference(one, other)
            gap = np.abs(scenes.draw(one, 48).astype(int) - scenes.draw(other, 48))
            for place in {scene.objects[number].place for scene in (one, other)}:
                cell = gap[cell_of(place)]
                assert cell.mean() > 1.5
                cell[:] = 0
            assert not gap.any()


def test_write_leaves_pictures_and_lists(tmp_path):
    told = []
    folder = tmp_path / "a" / "set"
    paths = scenes.write(folder, seed=5, **SMALL, progress=lambda *now: told.append(now))
    assert paths == (folder / "train.json", folder / "test.json")
    assert told == [(done, 20) for done in range(1, 21)]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["set"]
    for path, members in zip(paths, scenes.make(5, **SMALL), strict=True):
        records = json.loads(path.read_text())
        assert len(records) == len(members)
        for index, (record, scene) in enumerate(zip(records, members, strict=True)):
            assert record == {
                "filename": f"{path.stem}/{index:05d}.png",
                "caption": scenes.describe(scene),
                "family": scene.family,
            }
            with Image.open(folder / record["filename"]) as picture:
                assert picture.format == "PNG"
                np.testing.assert_array_equal(np.asarray(picture), scenes.draw(scene, 48))
    assert json.loads((folder / "scenes.json").read_text()) == {
        "format": scenes.FORMAT,
        "seed": 5,
        "size": 48,
        **SMALL,
    }


def test_equal_arguments_write_equal_bytes(tmp_path):
    for name in ("one", "two"):
        scenes.write(tmp_path / name, **SMALL)
    files = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.*")]
    assert len(files) == 20 + 3
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_set_that_is_there_is_used_again(tmp_path):
    told = []
    first = scenes.write(tmp_path / "set", **SMALL)
    first[0].write_text("untouched")
    again = scenes.write(tmp_path / "set", **SMALL, progress=lambda *now: told.append(now))
    assert again == first
    assert first[0].read_text() == "untouched"
    assert not told


def test_a_set_of_other_arguments_is_an_error(tmp_path):
    scenes.write(tmp_path, **SMALL)
    with pytest.raises(types.UserError, match=r"seed=0, size=48, not seed=1, size=32; choose"):
        scenes.write(tmp_path, **SMALL, seed=1, size=32)


@pytest.mark.parametrize("content", ["not json", "[]", "{}", None], ids=str)
def test_a_folder_in_other_use_is_an_error(tmp_path, content):
    name = "photo.jpg" if content is None else "scenes.json"
    (tmp_path / name).write_text(content or "")
    with pytest.raises(types.UserError, match="no set of drawn scenes; choose another"):
        scenes.write(tmp_path, **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_in_the_way_is_an_error(tmp_path):
    (tmp_path / "set").touch()
    with pytest.raises(types.UserError, match="no set of drawn scenes"):
        scenes.write(tmp_path / "set", **SMALL)


def test_an_interrupted_write_leaves_nothing(tmp_path):
    def stop(done, total):
        if done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scenes.write(tmp_path / "set", **SMALL, progress=stop)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seed", [0, 1], ids=["same set", "other set"])
def test_another_process_was_faster(tmp_path, seed):
    def overtake(done, total):
        if done == total:
            scenes.write(tmp_path / "set", **SMALL, seed=seed)

    if seed == 0:
        paths = scenes.write(tmp_path / "set", **SMALL, progress=overtake)
        assert all(path.exists() for path in paths)
    else:
        with pytest.raises(types.UserError, match="seed=1, not seed=0"):
            scenes.write(tmp_path / "set", **SMALL, progress=overtake)
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


@pytest.mark.parametrize(
    "wrong", [{"train": 0}, {"test_families": 0}, {"family_share": 1.5}, {"size": 20}], ids=str
)
def test_arguments_out_of_range(tmp_path, wrong):
    [(name, value)] = wrong.items()
    with pytest.raises(types.UserError, match=f"{name} (is )?{value}"):
        scenes.write(tmp_path / "set", **{**SMALL, **wrong})
    assert not (tmp_path / "set").exists()
