"""Where compiled programs are kept: what is named, what is set, the user's cache, or nowhere."""

import pathlib

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache

from hnclip_jax import types
from hnclip_jax.parallel import compiled


@pytest.fixture(autouse=True)
def own_settings(monkeypatch, tmp_path):
    """JAX's settings as they are when nothing was said, and put back afterwards."""
    names = ("jax_compilation_cache_dir", "jax_enable_compilation_cache")
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def test_by_default_the_user_s_cache_by_processor(tmp_path):
    path = compiled.keep("auto")
    assert path.parent == tmp_path / "cache" / "hnclip_jax" / "compiled"
    assert jax.config.jax_compilation_cache_dir == str(path)
    assert compiled.keep("auto") == path


def test_without_a_cache_variable_below_home(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(pathlib.Path, "home", lambda: tmp_path)
    assert compiled.keep("auto").is_relative_to(tmp_path / ".cache" / "hnclip_jax")


def test_what_jax_was_told_stays(tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "told"))
    assert compiled.keep("auto") == tmp_path / "told"
    assert compiled.keep(str(tmp_path / "named")) == tmp_path / "named"
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "named")


def test_nowhere(tmp_path):
    assert compiled.keep("") is None
    assert not jax.config.jax_enable_compilation_cache


def test_a_cache_that_cannot_be_written_is_none_but_a_named_one_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "cache").touch()
    assert compiled.keep("auto") is None
    assert jax.config.jax_compilation_cache_dir is None
    with pytest.raises(types.UserError, match=r"cannot write to parallel\.compilation_cache"):
        compiled.keep(str(tmp_path / "cache" / "here"))


def test_a_program_lies_there_afterwards(tmp_path):
    path = compiled.keep(str(tmp_path / "named"))
    jax.jit(lambda x: x * 17 + 4)(jnp.ones(5)).block_until_ready()
    assert [one for one in path.iterdir() if one.stat().st_size]
