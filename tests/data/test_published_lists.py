"""The JSON lists that data sets and papers publish, in small."""

import json

import pytest

from hnclip_jax import types
from hnclip_jax.data import lists
from hnclip_jax.data.formats import rows
from tests.data import writing

BOX = {"x1": 10, "y1": 22, "x2": 310, "y2": 260, "width": 300, "height": 238}


def _read(folder, content, **policies):
    return lists.read(writing.write(folder, content), **policies)


def _names(found, folder):
    return [str(record.image).removeprefix(f"{folder}/") for record in found.records]


def test_goal_flat_list(tmp_path):
    writing.touch(tmp_path, "photos/sa_2.jpg", "photos/sa_1.jpg")
    content = [{"filename": f"../DCI/photos/sa_{n}.jpg", "caption": f"c{n}"} for n in (2, 1)]
    found = _read(tmp_path, content, image_root=str(tmp_path / "photos"))
    assert _names(found, tmp_path) == ["photos/sa_2.jpg", "photos/sa_1.jpg"]
    assert [record.group for record in found.records] == ["", ""]


def test_goal_training_list_without_its_segments(tmp_path):
    writing.touch(tmp_path, "images/train_1.jpg", "segments/train_1.jpg_results/train_1_max_1.png")
    segment = {
        "filename": "segments/train_1.jpg_results/train_1_max_1.png",
        "caption": "It hangs in a tree",
        "similarity_score": 24.7,
        "bbox_coordinates": BOX,
    }
    row = {
        "segment": [segment],
        "original_filename": "images/train_1.jpg",
        "original_caption": "A red kite. It hangs in a tree.",
    }
    found = _read(tmp_path, [row, {**row, "segment": []}])
    assert _names(found, tmp_path) == ["images/train_1.jpg"] * 2
    assert writing.captions(found) == [["A red kite. It hangs in a tree."]] * 2
    assert {record.group for record in found.records} == {""}


def test_goal_joint_list_knows_whose_part_a_picture_is(tmp_path):
    local = "../pipline/segment_with_background_DCI_test_set_max_0.01/{}.jpg_results/{}"
    names = [
        "../photos/sa_1.jpg",
        "../photos/sa_2.jpg",
        local.format("sa_2", "original_image.jpg"),
        local.format("sa_1", "sa_1_max_3.png"),
    ]
    root = tmp_path / "mine"
    writing.touch(root, "sa_1.jpg", "sa_2.jpg", *(name.split("/", 2)[2] for name in names[2:]))
    content = [{"filename": name, "caption": name} for name in names]
    content[3]["similarity_score"] = 24.7
    found = _read(tmp_path, content, image_root=str(root))
    assert [record.group for record in found.records] == [
        "sa_1.jpg",
        "sa_2.jpg",
        "sa_2.jpg",
        "sa_1.jpg",
    ]


def test_structxlip_training_and_test_lists(tmp_path):
    writing.touch(tmp_path, "images/train_1.jpg", "sketches/other.jpg")
    row = {"original_filename": "images/train_1.jpg", "original_caption": "A red kite."}
    edges = {"original_filename_structure": "edges/train_1.png", "segment": None}
    found = _read(tmp_path, [{**edges, **row}, {"file_name": "sketches/other.jpg", **row}])
    assert _names(found, tmp_path) == ["images/train_1.jpg"] * 2
    assert writing.captions(found) == [["A red kite."]] * 2


def test_sharegpt4v_conversations(tmp_path):
    writing.touch(tmp_path, "data/sam/images/sa_1.jpg", "data/coco/train2017/1.jpg")
    told = [
        {"from": "human", "value": "<image>\nDescribe."},
        {"from": "gpt", "value": "One.\nTwo.\n"},
    ]
    content = [
        {"id": "sa_1", "image": "sam/images/sa_1.jpg", "conversations": told},
        {"id": "000001", "image": "coco/train2017/1.jpg", "conversations": told},
    ]
    found = _read(tmp_path, content, image_root=str(tmp_path / "data"))
    assert writing.captions(found) == [["One. Two."]] * 2
    assert [record.id for record in found.records] == ["sa_1", "000000000001"]


KARPATHY = {
    "dataset": "coco",
    "images": [
        {
            "filepath": "val2014",
            "filename": f"COCO_{number}.jpg",
            "imgid": number,
            "cocoid": 40 + number,
            "split": split,
            "sentids": [0, 1],
            "sentences": [
                {"raw": f"A red shoe {number}.", "tokens": ["no"], "sentid": 0},
                {"raw": " Another. ", "tokens": ["no"], "sentid": 1},
            ],
        }
        for number, split in enumerate(["test", "train", "restval", "test"])
    ],
}


@pytest.mark.parametrize("indent", [None, 2])
def test_karpathy(indent, tmp_path):
    writing.touch(tmp_path, *(f"val2014/COCO_{n}.jpg" for n in range(4)))
    content = json.dumps(KARPATHY, indent=indent)
    found = _read(tmp_path, content, split="test")
    assert _names(found, tmp_path) == ["val2014/COCO_0.jpg", "val2014/COCO_3.jpg"]
    assert writing.captions(found) == [[f"A red shoe {n}.", "Another."] for n in (0, 3)]
    assert [record.id for record in found.records] == ["000000000040", "000000000043"]
    assert len(_read(tmp_path, content, split="train+restval").records) == 2
    with pytest.raises(types.UserError, match=r"several splits \(test 2, train 1, restval 1\)"):
        _read(tmp_path, content)


def test_karpathy_of_flickr_has_no_folders(tmp_path):
    image = {"filename": "1.jpg", "imgid": 3, "split": "val", "sentences": [{"raw": "A dog ."}]}
    found = rows.read(writing.write(tmp_path, {"images": [image], "dataset": "flickr30k"}))
    assert found.kind == "Karpathy"
    assert list(found.rows) == [rows.Row("1.jpg", ["A dog ."], "000000000003", "val")]


def _coco(images, annotations, **more):
    return {
        "info": {"year": 2017},
        "licenses": [],
        "images": [{"id": n, "file_name": f"{n:012d}.jpg", "height": 1} for n in images],
        "annotations": [
            {"id": id_, "image_id": n, "caption": text} for id_, (n, text) in enumerate(annotations)
        ],
        **more,
    }


@pytest.mark.parametrize("backwards", [False, True], ids=["images first", "annotations first"])
def test_coco_captions(backwards, tmp_path):
    notes = [(785, "z"), (139, "b. "), (785, "y"), (139, "a"), *((139, f"\n{n}") for n in range(4))]
    content = _coco([785, 1000, 139], [*notes, (1000, "x")])
    if backwards:
        content = dict(reversed(content.items()))
    found = rows.read(writing.write(tmp_path, content))
    assert found.kind == "COCO captions"
    assert list(found.rows) == [
        rows.Row("000000000139.jpg", ["b. ", "a", "\n0", "\n1", "\n2", "\n3"], "000000000139"),
        rows.Row("000000000785.jpg", ["z", "y"], "000000000785"),
        rows.Row("000000001000.jpg", ["x"], "000000001000"),
    ]
    writing.touch(tmp_path, "val2017/000000000139.jpg", "val2017/000000000785.jpg")
    image_root = str(tmp_path / "val2017")
    checked = _read(tmp_path, content, image_root=image_root, missing="skip")
    assert writing.captions(checked) == [["b.", "a", "0", "1", "2", "3"], ["z", "y"]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_coco([1, 2], [(1, "a"), (7, "b"), (9, "c")]), r"2 values of image_id .* \(7, 9\)"),
        (
            {**_coco([1], []), "annotations": [{"image_id": 1, "bbox": [1]}]},
            "annotations hold no captions; take the file of COCO whose name begins with captions_",
        ),
        (
            {**_coco([1], [(1, "a")]), "images": [{"id": 1, "file_name": "1.jpg"}, {"id": 2}]},
            r"\{'images': 1, 'annotations': 0\}|\{'images': 1\} of its entries are not in COCO's",
        ),
        ({"images": [{"id": 1, "file_name": "1.jpg"}]}, "one object with the keys 'images'"),
    ],
    ids=["strangers", "boxes", "no file name", "no annotations"],
)
def test_what_is_no_coco(content, message, tmp_path):
    with pytest.raises(types.UserError, match=message):
        rows.read(writing.write(tmp_path, content))


def test_a_coco_picture_without_captions_is_an_empty_caption(tmp_path):
    writing.touch(tmp_path, "000000000001.jpg", "000000000002.jpg")
    content = _coco([1, 2], [(1, "a")])
    with pytest.raises(types.UserError, match="1 of 2 rows have a caption that is blank"):
        _read(tmp_path, content)
    assert len(_read(tmp_path, content, empty_caption="skip").records) == 1


def test_flair_lists(tmp_path):
    writing.touch(tmp_path, "1.jpg", "10.jpg", "flickr30k-images/7.jpg")
    urban = {
        "annotations": [
            {"image_id": n, "image": name, "caption": f"c{n}"}
            for n, name in enumerate(["1.jpg", "10.jpg"])
        ]
    }
    found = _read(tmp_path, urban)
    assert _names(found, tmp_path) == ["1.jpg", "10.jpg"]
    flickr = [{"image": "flickr30k-images/7.jpg", "caption": list("abcde")}]
    assert writing.captions(_read(tmp_path, flickr)) == [list("abcde")]


def test_docci_descriptions(tmp_path):
    names = ["test_00012", "qual_test_00000", "test_00001"]
    writing.touch(tmp_path, *(f"images/{name}.jpg" for name in names))
    content = [
        {
            "example_id": name,
            "split": name.rsplit("_", 1)[0],
            "image_file": f"{name}.jpg",
            "description": "A mug.",
        }
        for name in names
    ]
    path = writing.write(tmp_path, writing.lines(content) + "\n\n", "docci_descriptions.jsonlines")
    found = lists.read(path, image_root=str(tmp_path / "images"), split="test")
    assert [record.id for record in found.records] == ["test_00012", "test_00001"]
    assert [row.split for row in rows.read(path).rows] == ["test", "qual_test", "test"]


def test_visual_genome_paragraphs(tmp_path):
    writing.touch(tmp_path, "VG_100K_2/20.jpg", "VG_100K/7.jpg")
    content = [
        {
            "url": f"https://cs.stanford.edu/people/rak248/{folder}/{number}.jpg",
            "image_id": number,
            "paragraph": f"{text}. ",
        }
        for folder, number, text in [
            ("VG_100K_2", 20, "a"),
            ("VG_100K", 7, "b"),
            ("VG_100K", 7, "c"),
        ]
    ]
    found = _read(tmp_path, content)
    assert _names(found, tmp_path) == ["VG_100K_2/20.jpg", "VG_100K/7.jpg", "VG_100K/7.jpg"]
    assert writing.captions(found) == [["a."], ["b."], ["c."]]
    ids = ["000000000020", "000000000007", "000000000007#2"]
    assert [record.id for record in found.records] == ids
    assert writing.captions(_read(tmp_path, content, repeats="drop")) == [["a."], ["b."]]
    with pytest.raises(types.UserError, match="name no picture"):
        _read(tmp_path, [{"url": "https://example.com/a/b.jpg", "caption": "c"}])
