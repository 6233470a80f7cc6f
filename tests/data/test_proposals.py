"""Regions of pictures: fixed ones, and those of COCO's and SAM's files."""

import json

import pytest

from hnclip_jax import types
from hnclip_jax.data import proposals, regions
from tests.data import writing

COCO = {
    "info": {"year": 2017},
    "annotations": [
        {"image_id": 7, "bbox": [10, 20, 30.5, 40.25], "area": 900, "segmentation": [[1, 2, 3]]},
        {"image_id": 8, "bbox": [0, 0, 50, 50], "segmentation": {"counts": "x", "size": [9, 9]}},
        {"image_id": 7, "bbox": [60, 0, 80, 50]},
        {"image_id": 7, "bbox": [0, 0, 100, 100]},
        {"image_id": 7, "bbox": [50, 0, 170, 50]},
        {"image_id": 7, "bbox": [0, 0, 5, 5]},
    ],
    "images": [
        {"id": 7, "file_name": "val2017/7.jpg"},
        {"id": 8, "file_name": "x/8.jpg"},
        {"id": 9, "file_name": "9.jpg"},
    ],
}


def test_cocos_boxes(tmp_path):
    found = proposals.read(writing.write(tmp_path, COCO))
    assert len(found) == 2
    name = found.find("/data/val2017/7.jpg")
    assert name == "val2017/7.jpg"
    # One is all and one too small; what lies beyond the right edge does not count.
    assert found.of(name, (100, 100), 0.01, 0.8) == [
        (regions.Box(10, 20, 41, 61), "box"),
        (regions.Box(60, 0, 100, 50), "box"),
        (regions.Box(50, 0, 100, 50), "box"),
    ]
    assert found.numbers(name)[:5] == [10, 20, 30.5, 40.25, 900]


def test_the_area_is_that_of_the_mask_and_the_borders_are_in_the_range(tmp_path):
    notes = [
        {"image_id": 7, "bbox": [0, 0, 20, 20], "area": 99},
        {"image_id": 7, "bbox": [0, 0, 30, 30], "area": 100},
        {"image_id": 7, "bbox": [0, 0, 100, 100], "area": 8000},
        {"image_id": 7, "bbox": [0, 0, 99, 100], "area": 8001},
        {"image_id": 7, "bbox": [0, 0, 30, 30], "area": 100},
        {"image_id": 7, "bbox": [200, 0, 30, 30]},
    ]
    found = proposals.read(writing.write(tmp_path, {**COCO, "annotations": notes}))
    boxes = [one.box for one in found.of("val2017/7.jpg", (100, 100), 0.01, 0.8)]
    assert boxes == [(0, 0, 30, 30), (0, 0, 100, 100)]


def test_sams_boxes_of_a_folder(tmp_path):
    for number in (1, 2):
        content = {
            "image": {"image_id": number, "file_name": f"sa_{number}.jpg", "width": 9, "height": 9},
            "annotations": [
                {"image_id": 7 + n, "bbox": [n, 0, 4, 4], "area": 9} for n in range(number)
            ],
        }
        writing.write(tmp_path, content, f"sa_{number}.json")
    (tmp_path / "sa_1.jpg").touch()
    seen = []
    found = proposals.read(tmp_path, lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]
    name = found.find("/photos/sa_2.jpg")
    assert [one.box for one in found.of(name, (9, 9), 0, 1)] == [(0, 0, 4, 4), (1, 0, 5, 4)]
    alone = proposals.read(tmp_path / "sa_1.json")
    assert (len(alone), alone.first, alone.find("sa_2.jpg")) == (1, "sa_1.jpg", None)


def test_pictures_are_found_by_the_longest_name_or_else_by_a_single_last_one(tmp_path):
    names = ["a/1.jpg", "b/1.jpg", "c/2.jpg", "3.jpg", "d/3.jpg"]
    content = {
        "images": [{"id": n, "file_name": name} for n, name in enumerate(names)],
        "annotations": [{"image_id": n, "bbox": [0, 0, 1, 1]} for n in range(5)],
    }
    found = proposals.read(writing.write(tmp_path, content))
    assert found.find("/x/b/1.jpg") == "b/1.jpg"
    assert found.find("/x/d/3.jpg") == "d/3.jpg"
    assert found.find("/x/e/3.jpg") == "3.jpg"
    assert found.find("/x/d/1.jpg") is None
    assert found.find("/x/d/2.jpg") == "c/2.jpg"
    assert found.find("2.jpg") == "c/2.jpg"
    assert found.find("/x/c/2.jpg.png") is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[]", "is no JSON object; needed is COCO's"),
        ("{}", r"is one object with the keys \(none\); needed"),
        ({"images": COCO["images"]}, "with the keys 'images'; needed"),
        ({"annotations": COCO["annotations"]}, "with the keys 'annotations'; needed"),
        ({**COCO, "images": COCO["images"][1:]}, r"1 values of image_id .* \(7\)"),
        ({**COCO, "annotations": [{"image_id": 7}]}, "bbox of an annotation is None, not x"),
        ({**COCO, "annotations": [{"image_id": 7, "bbox": [1, 2, 3]}]}, r"is \[1, 2, 3\], not x"),
        ({**COCO, "annotations": [{"image_id": 7, "bbox": [1, 2, 3, "4"]}]}, "'4'], not x"),
        ({**COCO, "annotations": [7]}, "bbox of an annotation is None"),
        ({**COCO, "annotations": [{"bbox": [1, 2, 3, 4]}]}, r"image_id .* \(None\)"),
        ({**COCO, "images": [{"id": 7}]}, "the file_name of an image is None"),
        ({**COCO, "images": [{"id": [7], "file_name": "a"}]}, r"the id of an image is \[7\]"),
        ({"image": {"file_name": ""}, "annotations": []}, "the file_name of an image is ''"),
        ('{"images": [', "no valid JSON at line 1"),
    ],
)
def test_files_that_are_none(tmp_path, content, reason):
    with pytest.raises(types.UserError, match=reason) as error:
        proposals.read(writing.write(tmp_path, content, "boxes.json"))
    assert "boxes.json" in str(error.value)
    assert "\n" not in str(error.value)


def test_places_that_hold_none(tmp_path):
    with pytest.raises(types.UserError, match="holds no JSON file"):
        proposals.read(tmp_path)
    with pytest.raises(types.UserError, match="No such file"):
        proposals.read(tmp_path / "boxes.json")
    writing.write(tmp_path, json.dumps({"image": {"file_name": "a.jpg"}, "annotations": []}))
    assert proposals.read(tmp_path).of("a.jpg", (9, 9), 0, 1) == []


def test_fixed_regions_by_hand():
    found = proposals.fixed((100, 61), 3)
    assert [(*one.box, one.source) for one in found] == [
        (0, 0, 50, 30, "quarter"),
        (50, 0, 100, 30, "quarter"),
        (0, 30, 50, 61, "quarter"),
        (50, 30, 100, 61, "quarter"),
        (25, 15, 75, 46, "centre"),
        (0, 0, 33, 20, "grid"),
        (33, 0, 66, 20, "grid"),
        (66, 0, 100, 20, "grid"),
        (0, 20, 33, 40, "grid"),
        (33, 20, 66, 40, "grid"),
        (66, 20, 100, 40, "grid"),
        (0, 40, 33, 61, "grid"),
        (33, 40, 66, 61, "grid"),
        (66, 40, 100, 61, "grid"),
    ]
    assert proposals.whole((100, 61)) == ((0, 0, 100, 61), "whole")


@pytest.mark.parametrize("grid", [0, 1, 2])
def test_a_grid_of_two_would_be_the_quarters(grid):
    assert len(proposals.fixed((100, 61), grid)) == 5


def test_pictures_of_few_pixels_have_no_empty_regions():
    for sides in ((1, 1), (2, 1), (1, 7), (4, 4)):
        for one in proposals.fixed(sides, 5):
            assert regions.inside(one.box, sides) == one.box
