"""Where the pictures of a list are looked for, and what is said when they are not there."""

import pytest

from hnclip_jax import types
from hnclip_jax.data import lists, paths
from tests.data import writing


@pytest.fixture
def folder(tmp_path):
    """A list folder that holds the pictures of the rows."""
    home = tmp_path / "listen für alle"
    writing.touch(home, *(row["filename"] for row in writing.ROWS))
    return home


def test_path_resolution_order(tmp_path):
    places = {
        "list's folder": tmp_path / "home" / "lists",
        "its parent": tmp_path / "home",
        "image_root": tmp_path / "pictures",
        "bare name in image_root": tmp_path / "pictures",
    }
    name = "some dir/ä 1.jpg"
    files = [folder / name for folder in places.values()]
    files[3] = places["image_root"] / "ä 1.jpg"
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    path = writing.write(places["list's folder"], [{"filename": name, "caption": "c"}])
    for file in files:
        found = lists.read(path, image_root=str(places["image_root"]))
        assert found.records[0].image == str(file)
        file.unlink()
    with pytest.raises(types.UserError) as caught:
        lists.read(path, image_root=str(places["image_root"]))
    assert [str(file) in str(caught.value) for file in files] == [True] * 4


def test_absolute_paths(folder, tmp_path):
    absolute = tmp_path / "elsewhere.jpg"
    absolute.touch()
    path = writing.write(folder, [{"filename": str(absolute), "caption": "c"}])
    assert lists.read(path).records[0].image == str(absolute)
    gone = writing.write(folder, [{"filename": "/placeholder/dir/a.jpg", "caption": "c"}])
    with pytest.raises(types.UserError, match=r"is none of /placeholder/dir/a\.jpg;"):
        lists.read(gone)
    assert lists.read(gone, image_root=str(folder)).records[0].image == str(folder / "a.jpg")


def test_relative_arguments_give_absolute_pictures(folder, monkeypatch):
    writing.write(folder, [{"filename": "placeholder/a.jpg", "caption": "c"}])
    monkeypatch.chdir(folder.parent)
    found = lists.read(f"{folder.name}/list.json", image_root=folder.name)
    assert found.path == str(folder / "list.json")
    assert found.records[0].image == str(folder / "a.jpg")


def test_one_file_for_two_names_is_refused(folder):
    rows = [{"filename": f"{n}_results/a.jpg", "caption": str(n)} for n in range(2)]
    match = r"'0_results/a\.jpg' and '1_results/a\.jpg' would both be .*a\.jpg"
    with pytest.raises(types.UserError, match=match):
        lists.read(writing.write(folder, rows), image_root=str(folder))
    # One picture may well stand in many rows, and in more than one spelling that leads to it.
    names = ["0_results/a.jpg", "0_results/a.jpg", "a.jpg", str(folder / "a.jpg")]
    path = writing.write(folder, [{"filename": name, "caption": "c"} for name in names])
    found = lists.read(path, image_root=str(folder))
    assert [record.image for record in found.records] == [str(folder / "a.jpg")] * 4


def test_missing_pictures(folder):
    rows = [
        writing.ROWS[0],
        {"filename": "gone ü.jpg", "caption": "c"},
        writing.ROWS[2],
        {**writing.ROWS[0], "filename": "x"},
    ]
    path = writing.write(folder, rows)
    with pytest.raises(types.UserError, match=r"2 of 4 pictures are missing \(row 1, 3,.*'gone ü"):
        lists.read(path)
    found = lists.read(path, missing="skip")
    assert [record.index for record in found.records] == [0, 2]
    assert found.report == lists.Report(4, 2, 2, 0, 0, missing_folders={"": 2})


def test_a_folder_is_no_picture(folder):
    with pytest.raises(types.UserError, match="1 of 1 pictures are missing"):
        lists.read(writing.write(folder, [{"filename": "sub dir", "caption": "c"}]))


@pytest.mark.parametrize(
    "name",
    [
        "chage/path/to/your/directory/dataset/images/7.jpg",
        "chage/path/to/your/directoryUrban1k/image/7.jpg",
        "/data/placeholder/7.jpg",
        "../../photos/7.jpg",
    ],
    ids=["placeholder", "placeholder without its slash", "absolute", "relative"],
)
def test_published_paths_are_rebased_by_file_name(name, folder, tmp_path):
    writing.touch(tmp_path / "mine", "7.jpg")
    path = writing.write(folder, [{"filename": name, "caption": "c"}])
    found = lists.read(path, image_root=str(tmp_path / "mine"))
    assert found.records[0].image == str(tmp_path / "mine" / "7.jpg")
    with pytest.raises(types.UserError, match="1 of 1 pictures are missing"):
        lists.read(path)


def test_the_longest_end_of_a_path_wins(folder, tmp_path):
    root = tmp_path / "mine"
    names = ["a/b/c.jpg", "b/c.jpg", "c.jpg"]
    writing.touch(root, *names)
    path = writing.write(folder, [{"filename": "/x/a/b/c.jpg", "caption": "c"}])
    for name in names:
        assert lists.read(path, image_root=str(root)).records[0].image == str(root / name)
        (root / name).unlink()


def test_two_folders_of_equal_file_names_under_image_root(folder, tmp_path):
    names = ["p/a.jpg_results/original_image.jpg", "p/b.jpg_results/original_image.jpg"]
    path = writing.write(folder, [{"filename": "../x/" + n, "caption": "c"} for n in names])
    writing.touch(tmp_path / "mine", *names)
    found = lists.read(path, image_root=str(tmp_path / "mine"))
    assert [record.image for record in found.records] == [str(tmp_path / "mine" / n) for n in names]


def test_many_missing_pictures_are_counted_by_folder(folder):
    names = ["sam/images/1.jpg", "coco/1.jpg", "1.jpg", *(f"sam/images/{n}.jpg" for n in range(9))]
    path = writing.write(folder, [{"filename": name, "caption": "c"} for name in (*names, "a.jpg")])
    match = r"12 of 13 pictures .*by folder: 10 of sam/images, 1 of \(no folder\), 1 of coco; the"
    with pytest.raises(types.UserError, match=match):
        lists.read(path)
    report = lists.read(path, missing="skip").report
    assert report.missing_folders == {"sam/images": 10, "": 1, "coco": 1}
    assert next(iter(report.missing_folders)) == "sam/images"


@pytest.mark.parametrize("name", ["a\0.jpg", "\ud800.jpg", "x" * 5000, "."], ids=ascii)
def test_what_can_be_no_file_is_missing(name, folder):
    with pytest.raises(types.UserError, match="1 of 1 pictures are missing") as caught:
        lists.read(writing.write(folder, [{"filename": name, "caption": "c"}]))
    assert str(caught.value).isprintable()


def test_paths_alone(tmp_path):
    writing.touch(tmp_path, "lists/a.jpg", "b.jpg", "root/c.jpg")
    names = ["a.jpg", "b.jpg", "x/y/c.jpg", "d.jpg"]
    assert paths.resolve(names, str(tmp_path / "lists"), str(tmp_path / "root")) == [
        str(tmp_path / "lists/a.jpg"),
        str(tmp_path / "b.jpg"),
        str(tmp_path / "root/c.jpg"),
        "",
    ]
