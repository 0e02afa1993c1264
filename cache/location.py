"""Where the cache lies when the user names no directory.

In: the environment and the platform. Out: a directory path, or None when there is no place that
only this user can write to. Invariant: NEFFs hold machine code, so a directory that others could
have prepared for us is never chosen.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from neuron_compile.cache.warn_once import warn_once

NAME = "neuron-compile"


def default_root(
    environ: Mapping[str, str] | None = None, *, platform: str = sys.platform
) -> Path | None:
    """The platform's user cache directory; without a home, a private temporary one.

    Linux: `$XDG_CACHE_HOME` (only if absolute, as the XDG Base Directory Specification demands),
    else `~/.cache`. macOS: `~/Library/Caches`. Nothing is created, save the private temporary
    directory.
    """
    environ = os.environ if environ is None else environ
    xdg = environ.get("XDG_CACHE_HOME", "")
    if platform != "darwin" and os.path.isabs(xdg):
        return Path(xdg) / NAME
    home = _home(environ)
    if home is None:
        return _private_temporary()
    return home / ("Library/Caches" if platform == "darwin" else ".cache") / NAME


def _home(environ: Mapping[str, str]) -> Path | None:
    named = environ.get("HOME", "")
    if os.path.isabs(named):
        return Path(named)
    import pwd  # only here: absent on some platforms, and seldom needed

    try:
        recorded = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a container that runs under a number without an account
        return None
    return Path(recorded) if os.path.isabs(recorded) else None


def _private_temporary() -> Path | None:
    """`<temporary directory>/neuron-compile-<uid>`, if it is ours alone.

    The name can be guessed, so somebody else may have put a directory or a link there before us.
    """
    try:
        path = Path(tempfile.gettempdir()) / f"{NAME}-{os.getuid()}"
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        warn_once("no-home", f"no directory for the NEFF cache: no home, and {error}")
        return None
    private = (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.getuid()
        and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )
    if not private:
        warn_once(
            "no-home", f"no directory for the NEFF cache: no home, and {path} is not ours alone"
        )
        return None
    warn_once("no-home", f"there is no home directory; the NEFF cache lies in {path}")
    return path
