"""Benchmarks from small trees of the shape of the official downloads, and from published lists."""

import csv
import dataclasses
import hashlib
import io
import json

import pytest
from PIL import Image

from hnclip_jax import types
from hnclip_jax.data import benchmarks, lists, pack

SIZES = {
    "docci_goal": (5100, 5100),
    "docci_test": (5000, 5000),
    "dci_goal": (1999, 1999),
    "dci_extra_all": (7602, 7602),
    "dci_short_extra": (7805, 7805),
    "long_dci_tulip": (7602, 7602),
    "long_dci_hn": (7444, 7444),
    "long_dci_holdout": (7444, 7444),
    "urban1k": (1000, 1000),
    "sv1k": (1000, 1000),
    "coco_val2017_5k": (5000, 25000),
    "coco_karpathy_5k": (5000, 25010),
    "flickr30k_karpathy_1k": (1000, 5000),
    "flickr30k_full": (31783, 158915),
}


def _touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def _json(path, content, **how):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, **how), "utf-8")
    return path


def _load(name, source, **more):
    return benchmarks.load(name, str(source), **more)


def _rows(pictures, folder):
    """Returns [(picture below `folder`, captions), ...]."""
    return [(r.image.removeprefix(f"{folder}/"), list(r.captions)) for r in pictures.records]


@pytest.fixture
def sized(monkeypatch):
    """Sets what a benchmark must hold: (name, pictures, captions)."""

    def resize(name, pictures, captions, queries=0):
        small = dataclasses.replace(
            benchmarks.REGISTRY[name],
            pictures=(pictures,),
            captions=(captions,),
            queries=queries,
        )
        monkeypatch.setitem(benchmarks.REGISTRY, name, small)

    return resize


# The registry


def test_the_registry_has_the_sizes_of_the_papers():
    found = {n: (b.pictures[0], b.captions[0]) for n, b in benchmarks.REGISTRY.items()}
    assert found == SIZES
    assert benchmarks.REGISTRY["long_dci_holdout"].queries == 1999
    assert all(b.queries == 0 for n, b in benchmarks.REGISTRY.items() if n != "long_dci_holdout")
    for benchmark in benchmarks.REGISTRY.values():
        assert benchmark.what
        assert benchmark.field
        assert benchmark.sources
        assert benchmark.reference


def test_the_table_shows_every_benchmark_with_its_sizes():
    lines = benchmarks.describe().splitlines()
    assert max(map(len, lines)) <= 140
    for name, (pictures, captions) in SIZES.items():
        (line,) = (line for line in lines if line.startswith(f"{name} "))
        assert line.split()[1:3] == [f"{pictures:,}", f"{captions:,}"]


def test_unknown_names_and_policies(tmp_path):
    with pytest.raises(
        types.UserError, match="unknown benchmark 'urban_1k'; did you mean 'urban1k'"
    ):
        benchmarks.load("urban_1k", str(tmp_path))
    for policy in ({"missing": "skp"}, {"empty_caption": "drop"}):
        with pytest.raises(types.UserError, match="unknown policy"):
            benchmarks.load("urban1k", str(tmp_path), **policy)


def test_two_names_of_one_protocol():
    assert benchmarks.canonical("dci_extra_all") == "long_dci_tulip"
    assert {benchmarks.canonical(name) for name in SIZES} == SIZES.keys() - {"dci_extra_all"}


# DOCCI


@pytest.fixture
def docci(tmp_path):
    """Seven descriptions of four splits, in no order, with a blank line at the end."""
    rows = [
        ("test", 1),
        ("train", 0),
        ("qual_test", 0),
        ("test", 0),
        ("qual_dev", 0),
        ("qual_test", 1),
        ("test", 2),
    ]
    lines = []
    for split, number in rows:
        name = f"{split}_{number:05}"
        _touch(tmp_path / "docci", f"images/{name}.jpg")
        lines.append(
            json.dumps(
                {
                    "example_id": name,
                    "split": split,
                    "image_file": f"{name}.jpg",
                    "description": f" About {name}, café. ",
                },
                ensure_ascii=False,
            )
        )
    (tmp_path / "docci" / "docci_descriptions.jsonlines").write_text("\n".join(lines) + "\n\n")
    return tmp_path / "docci"


GOAL_ORDER = ["qual_test_00000", "qual_test_00001", "test_00001", "test_00000", "test_00002"]


def test_docci_of_goal_is_qual_test_and_then_test(docci, sized):
    sized("docci_goal", 5, 5)
    pictures, name = _load("docci_goal", docci)
    assert name == "docci_goal"
    assert _rows(pictures, docci) == [
        (f"images/{stem}.jpg", [f"About {stem}, café."]) for stem in GOAL_ORDER
    ]
    assert [record.id for record in pictures.records] == GOAL_ORDER
    assert [record.index for record in pictures.records] == [0, 1, 2, 3, 4]
    assert pictures.report.rows == pictures.report.pairs == 5
    content = (docci / "docci_descriptions.jsonlines").read_bytes()
    assert pictures.sha256 == hashlib.sha256(content).hexdigest()
    assert pictures.queries is None


def test_docci_test_is_one_split(docci, sized):
    sized("docci_test", 3, 3)
    pictures, name = _load("docci_test", docci / "docci_descriptions.jsonlines")
    assert name == "docci_test"
    assert [record.id for record in pictures.records] == GOAL_ORDER[2:]


def test_a_download_without_the_split_says_which_it_has(docci):
    path = docci / "docci_descriptions.jsonlines"
    path.write_text(
        "".join(line + "\n" for line in path.read_text().split("\n") if "train" in line)
    )
    with pytest.raises(
        types.UserError, match=r"no rows of the split 'qual_test' or 'test', only of"
    ):
        _load("docci_goal", docci)


def test_pictures_may_be_anywhere(docci, tmp_path):
    (docci / "images").rename(tmp_path / "elsewhere")
    with pytest.raises(
        types.UserError, match=r"5 of 5 pictures are missing .*qual_test_00000\.jpg"
    ):
        _load("docci_goal", docci)
    pictures, _ = _load("docci_goal", docci, image_root=str(tmp_path / "elsewhere"))
    assert pictures.records[0].image == str(tmp_path / "elsewhere" / "qual_test_00000.jpg")


def _goal_list(path, stems, prefix, **keys):
    image, text = keys.get("image", "filename"), keys.get("text", "caption")
    rows = [{image: f"{prefix}{stem}.jpg", text: f"About {stem}, café."} for stem in stems]
    return _json(path, rows, indent=4)


def test_goals_list_is_the_same_benchmark(docci, tmp_path, sized):
    sized("docci_goal", 5, 5)
    placeholder = "chage/path/to/your/directory/dataset/images/"
    path = _goal_list(tmp_path / "docci_test.json", GOAL_ORDER, placeholder)
    listed, name = _load("docci_goal", path, image_root=str(docci / "images"))
    official, _ = _load("docci_goal", docci)
    assert name == "docci_goal"
    assert [r.image for r in listed.records] == [r.image for r in official.records]
    assert listed.sha256 != official.sha256
    assert benchmarks.fingerprint(listed) == benchmarks.fingerprint(official)


def test_what_was_skipped_or_has_another_size_loses_its_name(docci, sized):
    (docci / "images" / "test_00000.jpg").unlink()
    pictures, name = _load("docci_goal", docci, missing="skip")
    assert name is None
    assert [record.id for record in pictures.records] == [
        n for n in GOAL_ORDER if n != "test_00000"
    ]
    assert pictures.report.skipped_missing == 1
    assert benchmarks.misfit("docci_goal", pictures) == (
        "not called docci_goal: 4 pictures instead of 5,100, 4 captions instead of 5,100, "
        "1 were skipped"
    )
    # Even when what is left has the right size by chance.
    sized("docci_goal", 4, 4)
    assert _load("docci_goal", docci, missing="skip")[1] is None
    sized("docci_goal", 4, 5)
    assert "4 captions instead of 5, 1" in benchmarks.misfit("docci_goal", pictures)


def test_an_empty_caption_that_is_skipped_costs_the_name(tmp_path, sized):
    rows = [{"filename": "a.jpg", "caption": "A."}, {"filename": "b.jpg", "caption": " "}]
    path = _json(_touch(tmp_path, "a.jpg", "b.jpg") / "DCI_test.json", rows)
    sized("dci_goal", 1, 1)
    with pytest.raises(types.UserError, match="1 of 2 rows have a caption that is blank"):
        _load("dci_goal", path)
    pictures, name = _load("dci_goal", tmp_path, empty_caption="skip")
    assert (len(pictures.records), pictures.report.skipped_empty, name) == (1, 1, None)


# Lists of DCI


def _tulip(folder, rows):
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
    writer.writerows([("filepath", "title"), *rows])
    (folder / "dci_long.csv").write_text(text.getvalue(), "utf-8")
    return folder / "dci_long.csv"


def test_tulips_table_keeps_newlines_quotes_and_tabs(tmp_path, sized):
    sized("long_dci_tulip", 3, 3)
    rows = [
        ("sa_2.jpg", 'Two "odd"\nlines\tand a tab.'),
        ("sa_10.jpg", "One, with a comma; and “curly” quotes."),
        ("sa_1.jpg", '"All in quotes."'),
    ]
    _touch(tmp_path, *(f"photos/{name}" for name, _ in rows))
    for source in (_tulip(tmp_path, rows), tmp_path):
        pictures, name = _load("long_dci_tulip", source)
        assert name == "long_dci_tulip"
        assert _rows(pictures, tmp_path) == [(f"photos/{n}", [text]) for n, text in rows]


@pytest.fixture
def goal_lists(tmp_path):
    """GOAL's two lists of DCI: three training pictures with segments, two test pictures."""
    prefix = "../DCI/dataset/densely_captioned_images/photos/"
    train = [
        {
            "original_filename": f"{prefix}sa_{n}.jpg",
            "original_caption": f"About {n}.",
            "segment": [{"filename": "x.png", "caption": "part", "similarity_score": 1.0}],
        }
        for n in (3, 1, 7)
    ]
    _json(tmp_path / "lists" / "DCI_train_del_org.json", train)
    _goal_list(tmp_path / "lists" / "DCI_test.json", ("sa_5", "sa_2"), prefix)
    _touch(tmp_path, *(f"photos/sa_{n}.jpg" for n in (1, 2, 3, 5, 7)))
    return tmp_path / "lists"


def _both(folder):
    return f"{folder / 'DCI_train_del_org.json'}, {folder / 'DCI_test.json'}"


@pytest.mark.parametrize("source", [_both, str], ids=["two files", "their folder"])
def test_long_dci_is_the_training_list_and_then_the_test_list(source, goal_lists, tmp_path, sized):
    sized("long_dci_hn", 5, 5)
    sized("long_dci_holdout", 5, 5, queries=2)
    root = str(tmp_path / "photos")
    pictures, name = _load("long_dci_hn", source(goal_lists), image_root=root)
    assert name == "long_dci_hn"
    names = ["sa_3.jpg", "sa_1.jpg", "sa_7.jpg", "sa_5.jpg", "sa_2.jpg"]
    assert [record.image for record in pictures.records] == [f"{root}/{name}" for name in names]
    assert pictures.records[0].captions == ("About 3.",)
    assert [record.index for record in pictures.records] == [0, 1, 2, 3, 4]
    assert pictures.queries is None
    held, name = _load("long_dci_holdout", source(goal_lists), image_root=root)
    assert name == "long_dci_holdout"
    assert held.records == pictures.records
    assert held.queries == (3, 4)
    assert benchmarks.fingerprint(held) != benchmarks.fingerprint(pictures)
    whole = [hashlib.sha256(p.read_bytes()).hexdigest() for p in goal_lists.iterdir()]
    assert pictures.sha256 not in whole


def test_pictures_that_are_in_both_lists_are_an_error(goal_lists, tmp_path):
    _goal_list(goal_lists / "DCI_test.json", ("sa_5", "sa_1"), "other/folder/")
    with pytest.raises(
        types.UserError, match=r"1 pictures of .*DCI_test\.json are in .*: sa_1\.jpg"
    ):
        _load("long_dci_hn", goal_lists, image_root=str(tmp_path / "photos"))
    with pytest.raises(types.UserError, match="1 pictures of"):
        _load("long_dci_holdout", goal_lists, image_root=str(tmp_path / "photos"))


def test_the_holdout_may_ask_tulips_gallery(goal_lists, tmp_path, sized):
    sized("long_dci_holdout", 5, 5, queries=2)
    whole = _tulip(tmp_path, [(f"sa_{n}.jpg", f"About {n}.") for n in (1, 2, 3, 5, 7)])
    pictures, name = _load("long_dci_holdout", f"{whole},{goal_lists / 'DCI_test.json'}")
    assert name == "long_dci_holdout"
    assert len(pictures.records) == 5
    assert pictures.queries == (1, 3)
    with pytest.raises(types.UserError, match="2 pictures of"):
        _load("long_dci_hn", f"{whole},{goal_lists / 'DCI_test.json'}")


def test_lists_in_the_wrong_order_lose_the_name(goal_lists, tmp_path, sized):
    sized("long_dci_holdout", 5, 5, queries=2)
    source = ",".join(reversed(_both(goal_lists).split(",")))
    pictures, name = _load("long_dci_holdout", source, image_root=str(tmp_path / "photos"))
    assert name is None
    assert "3 queries instead of 2" in benchmarks.misfit("long_dci_holdout", pictures)


def test_queries_are_places_among_what_is_left(goal_lists, tmp_path):
    for gone in ("sa_1.jpg", "sa_5.jpg"):
        (tmp_path / "photos" / gone).unlink()
    root = str(tmp_path / "photos")
    pictures, name = _load("long_dci_holdout", goal_lists, image_root=root, missing="skip")
    assert name is None
    assert [record.index for record in pictures.records] == [0, 2, 4]
    assert pictures.queries == (2,)
    assert pictures.report.skipped_missing == 2
    folder = "../DCI/dataset/densely_captioned_images/photos"
    assert pictures.report.missing_folders == {folder: 2}
    assert pictures.report.rows == 5
    assert pictures.report.pairs == 3


@pytest.mark.parametrize("source", ["one.json", "a,b,c", "a,", ","])
def test_anything_but_two_lists_is_an_error(source):
    with pytest.raises(types.UserError, match=r"no two lists; give TRAIN\.json,TEST\.json"):
        _load("long_dci_hn", source)


# Urban-1K


@pytest.fixture
def urban(tmp_path):
    folder = tmp_path / "Urban1k"
    texts = {
        1: "A café — busy.\nA second line that no reader takes.",
        2: "Two buses.  ",
        10: "Ten people.\n",
    }
    for number, text in texts.items():
        _touch(folder, f"image/{number}.jpg", f"caption/{number}.txt")
        (folder / "caption" / f"{number}.txt").write_text(text, "utf-8")
    return folder


def test_urban_is_in_the_order_of_numbers_with_first_lines(urban, sized):
    sized("urban1k", 3, 3)
    _touch(urban, "image/._1.jpg", "caption/._1.txt")
    for source in (urban, urban.parent):
        pictures, name = _load("urban1k", source)
        assert name == "urban1k"
        assert _rows(pictures, urban) == [
            ("image/1.jpg", ["A café — busy."]),
            ("image/2.jpg", ["Two buses."]),
            ("image/10.jpg", ["Ten people."]),
        ]


def test_an_urban_caption_without_a_picture_is_an_error(urban):
    (urban / "caption" / "7.txt").write_text("Lost.")
    with pytest.raises(types.UserError, match=r"1 of 4 pictures are missing .*7\.jpg"):
        _load("urban1k", urban)
    assert _load("urban1k", urban, missing="skip")[1] is None


def test_an_urban_caption_that_is_no_utf8_is_an_error(urban):
    (urban / "caption" / "2.txt").write_bytes(b"caf\xe9")
    with pytest.raises(types.UserError, match=r"2\.txt.* is not UTF-8"):
        _load("urban1k", urban)


def test_published_lists_of_urban(urban, tmp_path, sized):
    sized("urban1k", 3, 3)
    # GOAL's list lacks the slash before the folder's name.
    goal = _goal_list(
        tmp_path / "urban_dataset_test.json",
        (1, 2, 10),
        "chage/path/to/your/directoryUrban1k/image/",
    )
    notes = [
        {"image_id": n, "image": f"{stem}.jpg", "caption": "x"} for n, stem in enumerate((1, 10, 2))
    ]
    flair = _json(tmp_path / "flair.json", {"annotations": notes})
    for path, stems in ((goal, (1, 2, 10)), (flair, (1, 10, 2))):
        pictures, name = _load("urban1k", path, image_root=str(urban / "image"))
        assert name == "urban1k"
        found = [record.image for record in pictures.records]
        assert found == [f"{urban}/image/{stem}.jpg" for stem in stems]
    # FLAIR's rows here have one caption: each but the first repeats an earlier one.
    assert pictures.report.duplicates == 2


def test_urban_in_full_has_its_name_and_loses_it_with_one_picture(tmp_path):
    folder = tmp_path / "Urban1k"
    for part in ("image", "caption"):
        (folder / part).mkdir(parents=True)
    for number in range(1, 1001):
        (folder / "image" / f"{number}.jpg").touch()
        (folder / "caption" / f"{number}.txt").write_text(f"Street {number}")
    pictures, name = _load("urban1k", folder)
    assert name == "urban1k"
    assert [r.captions[0] for r in pictures.records] == [f"Street {n}" for n in range(1, 1001)]
    for part, ending in (("image", "jpg"), ("caption", "txt")):
        (folder / part / f"500.{ending}").unlink()
    pictures, name = _load("urban1k", folder)
    assert (len(pictures.records), name) == (999, None)


# ShareGPT4V


def test_sv1k_is_the_first_thousand_records(tmp_path):
    rows = [
        {
            "id": f"sa_{n:06}",
            "image": f"sam/images/sa_{n}.jpg",
            "conversations": [
                {"from": "human", "value": "<image>\nDescribe."},
                {"from": "gpt", "value": f"Street {n}.\nTwo bicycles."},
            ],
        }
        for n in range(1003)
    ]
    file = "share-captioner_coco_lcs_sam_1246k_1107.json"
    _json(tmp_path / file, rows)
    _touch(tmp_path, *(f"sam/images/sa_{n}.jpg" for n in range(1000)))
    for source in (tmp_path / file, tmp_path):
        pictures, name = _load("sv1k", source)
        assert name == "sv1k"
        assert len(pictures.records) == 1000
        assert pictures.records[999].image == str(tmp_path / "sam/images/sa_999.jpg")
        assert pictures.records[999].captions == ("Street 999. Two bicycles.",)
    bare, _ = _load("sv1k", tmp_path / file, image_root=str(tmp_path / "sam" / "images"))
    assert bare.records[0].image == pictures.records[0].image


# COCO


def test_coco_is_by_ascending_id_with_five_captions_each(tmp_path, sized):
    sized("coco_val2017_5k", 2, 10)
    folder = _touch(tmp_path / "coco", "val2017/000000000139.jpg", "val2017/000000000042.jpg")
    images = [{"id": n, "file_name": f"{n:012}.jpg"} for n in (139, 42)]
    notes = []
    for n in range(6):
        notes.append({"id": 50 - n, "image_id": 139, "caption": f" Cat {n}\n"})
        if n < 5:
            notes.append({"id": 90 - n, "image_id": 42, "caption": f"Shoe {n}. "})
    path = folder / "annotations" / "captions_val2017.json"
    _json(path, {"info": {}, "images": images, "annotations": notes})
    for source in (folder, path):
        pictures, name = _load("coco_val2017_5k", source)
        assert name == "coco_val2017_5k"
        assert [r.image.rpartition("/")[2] for r in pictures.records] == [
            "000000000042.jpg",
            "000000000139.jpg",
        ]
        assert [r.captions for r in pictures.records] == [
            tuple(f"Shoe {n}." for n in range(5)),
            tuple(f"Cat {n}" for n in range(5)),
        ]


def _karpathy(path, folder, ending):
    images = [
        {
            **({"filepath": folder} if folder else {}),
            "filename": f"{number}{ending}.jpg",
            "imgid": n,
            "split": split,
            "sentences": [
                {"raw": f"Raw, {number} {k}.", "tokens": ["raw"], "sentid": k} for k in range(texts)
            ],
        }
        for n, (number, split, texts) in enumerate(
            [(5, "train", 5), (9, "test", 5), (3, "val", 5), (4, "restval", 5), (2, "test", 6)]
        )
    ]
    return _json(path, {"dataset": "x", "images": images})


@pytest.mark.parametrize(
    ("benchmark", "file", "folder", "place"),
    [
        ("coco_karpathy_5k", "dataset_coco.json", "val2014", "val2014"),
        ("flickr30k_karpathy_1k", "dataset_flickr30k.json", "", "flickr30k-images"),
    ],
)
def test_karpathys_test_split_has_raw_sentences(benchmark, file, folder, place, tmp_path, sized):
    sized(benchmark, 2, 11)
    _karpathy(tmp_path / file, folder, "")
    _touch(tmp_path, f"{place}/9.jpg", f"{place}/2.jpg")
    pictures, name = _load(benchmark, tmp_path)
    assert name == benchmark
    assert _rows(pictures, tmp_path) == [
        (f"{place}/9.jpg", [f"Raw, 9 {k}." for k in range(5)]),
        (f"{place}/2.jpg", [f"Raw, 2 {k}." for k in range(6)]),
    ]


# Flickr30k


def test_all_of_flickr_comes_from_the_token_file(tmp_path, sized):
    sized("flickr30k_full", 2, 10)
    lines = [f"{n}.jpg#{k}\tTwo people , {n} {k} ." for n in (10, 9) for k in range(5)]
    (tmp_path / "results_20130124.token").write_text("\n".join(lines) + "\n")
    _touch(
        tmp_path, "flickr30k-images/9.jpg", "flickr30k-images/10.jpg", "flickr30k-images/._9.jpg"
    )
    pictures, name = _load("flickr30k_full", tmp_path)
    assert name == "flickr30k_full"
    assert _rows(pictures, tmp_path) == [
        (f"flickr30k-images/{n}.jpg", [f"Two people , {n} {k} ." for k in range(5)])
        for n in (10, 9)
    ]


def test_captions_of_the_two_column_list_keep_their_commas(tmp_path, sized):
    sized("flickr30k_karpathy_1k", 1, 2)
    path = tmp_path / "flickr30k_test_karpathy.txt"
    path.write_text("image,caption\n9.jpg,A dog, a cat, and a man.\n9.jpg,Plain.\n")
    pictures, name = _load(
        "flickr30k_karpathy_1k",
        path,
        image_root=str(_touch(tmp_path / "pictures", "9.jpg")),
    )
    assert name == "flickr30k_karpathy_1k"
    assert [r.captions for r in pictures.records] == [("A dog, a cat, and a man.", "Plain.")]


# All


def test_a_packed_benchmark_is_the_benchmark(tmp_path, goal_lists, sized):
    sized("long_dci_holdout", 5, 5, queries=2)
    buffer = io.BytesIO()
    Image.new("RGB", (8, 6), (200, 30, 40)).save(buffer, "JPEG")
    for path in (tmp_path / "photos").iterdir():
        path.write_bytes(buffer.getvalue())
    root = str(tmp_path / "photos")
    pictures, _ = _load("long_dci_holdout", goal_lists, image_root=root)
    packed, name = _load("long_dci_holdout", pack.write(pictures, tmp_path / "packed"))
    assert name == "long_dci_holdout"
    assert packed.queries == (3, 4)
    assert benchmarks.fingerprint(packed) == benchmarks.fingerprint(pictures)
    (tmp_path / "photos" / "sa_1.jpg").unlink()
    part, _ = _load("long_dci_holdout", goal_lists, image_root=root, missing="skip")
    sized("long_dci_holdout", 4, 4, queries=2)
    assert _load("long_dci_holdout", pack.write(part, tmp_path / "part"))[1] is None


@pytest.mark.parametrize("name", [n for n in SIZES if not n.startswith("long_dci_h")])
def test_a_folder_without_the_download_says_what_it_should_hold(name, tmp_path):
    with pytest.raises(types.UserError, match=r"holds none of .*; give the folder of the download"):
        _load(name, tmp_path)
    with pytest.raises(types.UserError, match=r"gone\.json: No such file"):
        _load(name, tmp_path / "gone.json")


def test_the_fingerprint_is_that_of_captions_in_order():
    def fingerprint(*captions, queries=None, image="a.jpg"):
        records = tuple(
            lists.Record(n, image, texts, str(n), "") for n, texts in enumerate(captions)
        )
        report = lists.Report(len(records), len(records), 0, 0, 0)
        return benchmarks.fingerprint(lists.PictureList(records, report, "p", "s", queries))

    first = fingerprint(("a", "b"), ("c",))
    assert len(first) == 64
    assert first == fingerprint(("a", "b"), ("c",), image="elsewhere/b.jpg")
    others = [
        fingerprint(("a",), ("b", "c")),
        fingerprint(("c",), ("a", "b")),
        fingerprint(("a", "b"), ("C",)),
        fingerprint(("a", "b"), ("c",), queries=(0,)),
    ]
    assert len({first, *others}) == 5
