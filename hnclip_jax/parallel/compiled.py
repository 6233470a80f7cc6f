"""Where compiled programs are kept, so that the next start of the same run need not compile."""

import hashlib
import os
import pathlib
import platform

import jax
from jax.experimental.compilation_cache import compilation_cache

from hnclip_jax import types

AUTO = "auto"


def keep(folder: str) -> pathlib.Path | None:
    """Keeps programs that took over a second to compile, of all runs of this user, in a folder.

    Must come before the first compilation; it touches no device.

    Args:
      folder: a path; "auto" = JAX_COMPILATION_CACHE_DIR, if that is set, else a folder in the
        user's cache; "" = nowhere.

    Returns:
      The folder; None = nowhere, which is also where "auto" ends if the cache cannot be written.

    Raises:
      types.UserError: if a folder that was named cannot be written.
    """
    if not folder:
        jax.config.update("jax_enable_compilation_cache", False)
        return None
    if folder == AUTO and jax.config.jax_compilation_cache_dir:
        return pathlib.Path(jax.config.jax_compilation_cache_dir)
    path = _of_this_user() if folder == AUTO else pathlib.Path(folder).expanduser().absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        if folder == AUTO:
            return None
        raise types.UserError(
            f"cannot write to parallel.compilation_cache {folder}: {error.strerror}; name another "
            "folder, or '' for none"
        ) from error
    jax.config.update("jax_compilation_cache_dir", str(path))
    compilation_cache.reset_cache()  # It would stay where it was at the first compilation.
    return path


def _of_this_user() -> pathlib.Path:
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "hnclip_jax" / "compiled" / _processor()


def _processor() -> str:
    """Returns a name of the processor: programs for one may not run on another of a shared home."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = [platform.processor()]
    flags = {line for line in lines if line.startswith(("flags", "Features", "model name"))}
    digest = hashlib.sha256("\n".join(sorted(flags)).encode()).hexdigest()
    return f"{platform.machine()}-{digest[:8]}"
