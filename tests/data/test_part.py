"""What long work has done so far, in a file that outlives the process."""

import contextlib

import pytest

from hnclip_jax import types
from hnclip_jax.data import part


def _open(path):
    return contextlib.closing(part.Part(str(path)))


def test_lines_are_found_again(tmp_path):
    path = tmp_path / "a.part"
    with _open(path) as done:
        done.add("x", row={"caption": "größe"})
        done.add("y", row=2)
        assert done["x"] == {"key": "x", "row": {"caption": "größe"}}
    with _open(path) as again:
        assert [key in again for key in "xyz"] == [True, True, False]
        again.add("z", row=3)
        again.add("x", row=4)
        assert [again[key]["row"] for key in "xyz"] == [4, 2, 3]
    with _open(path) as last:
        assert last["x"]["row"] == 4


@pytest.mark.parametrize(
    "torn", ['{"key": "z", "ro', "7\n", '{"row": 1}\n', "\0\0\0", '{"key": "z"}']
)
def test_a_torn_line_goes_and_what_is_written_next_is_whole(tmp_path, torn):
    path = tmp_path / "a.part"
    with _open(path) as done:
        done.add("x", row=1)
    whole = path.read_bytes()
    with path.open("a") as file:
        file.write(torn)
    with _open(path) as again:
        assert "z" not in again
        assert path.read_bytes() == whole
        again.add("y", row=2)
    with _open(path) as last:
        assert [last[key]["row"] for key in "xy"] == [1, 2]


def test_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(types.UserError, match=r"cannot write .*none/a\.part: No such file"):
        part.Part(str(tmp_path / "none" / "a.part"))
