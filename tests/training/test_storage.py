"""What a file system says is one line; what JAX says of a lost process is none of its business."""

import errno
import os

import jax
import pytest

from hnclip_jax import types
from hnclip_jax.parallel import alarm
from hnclip_jax.training import storage


def _save(folder, error, cause=None):
    with storage.plain_errors(folder, "step 3"):
        raise error from cause


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "make room there"),
        (errno.EROFS, "make it writable"),
        (errno.ECONNRESET, "see whether its storage can be reached"),
        (errno.ESTALE, "mount it again"),
    ],
)
def test_what_the_file_system_says_comes_with_what_to_do(tmp_path, number, advice):
    with pytest.raises(types.UserError, match=f"step 3 could not be saved in .*{advice}") as told:
        _save(tmp_path, ValueError("in the background"), OSError(number, os.strerror(number)))
    assert told.value.exit_code == types.MISTAKE


# A partner that is killed resets the connection, which is no storage's.
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_lost_process_is_no_storage(tmp_path, monkeypatch, wrapped):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    said = jax.errors.JaxRuntimeError("UNKNOWN: Gloo AllGather failed: Connection reset by peer")
    error, cause = (ValueError("Connection"), said) if wrapped else (said, None)
    with pytest.raises(alarm.Lost, match="process 0 of 2 lost another one") as told:
        _save(tmp_path, error, cause)
    assert told.value.exit_code == types.AGAIN
    assert "Gloo AllGather failed" in str(told.value)


def test_an_error_that_has_itself_behind_it_is_looked_at_once(tmp_path):
    full = OSError(errno.EFBIG, "File too large")
    full.__context__ = ValueError("raised anew")
    full.__context__.__context__ = full
    with pytest.raises(types.UserError, match="allow larger files there"):
        _save(tmp_path, full)
    odd = ZeroDivisionError()
    odd.__context__ = ValueError("no fault of a disk")
    odd.__context__.__context__ = odd
    with pytest.raises(ZeroDivisionError):
        _save(tmp_path, odd)


def test_of_one_process_none_can_be_lost(tmp_path):
    with pytest.raises(types.UserError, match="see whether its storage can be reached") as told:
        _save(tmp_path, jax.errors.JaxRuntimeError("Connection refused"))
    assert not isinstance(told.value, alarm.Lost)


def test_a_folder_that_is_gone(tmp_path):
    with pytest.raises(types.UserError, match="see why it is gone"):
        _save(tmp_path / "gone", ValueError("no word of it"))


def test_other_errors_pass(tmp_path):
    with pytest.raises(ZeroDivisionError):
        _save(tmp_path, ZeroDivisionError())
