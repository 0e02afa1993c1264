"""Writing one entry so that readers see all of it or nothing.

In: a path and bytes. Out: the file at that path, replaced in one step. Invariant: whatever
interrupts us (kill, full disk, an exception), the path holds what it held before, or everything.

There is no fsync. Its use would be that after a power failure the name cannot exist without the
data. But readers check every entry's hash, so such an entry is a miss and is compiled again, while
an fsync costs every publication a disk's round trip (about 1 ms on a local SSD, tens on a disk or a
network file system). Errors that a network file system reports late come out of `close`, which is
before the rename.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from neuron_compile.cache.layout import is_temporary, temporary_path

# No process needs this long from the first byte to the rename; older temporaries have lost theirs.
ORPHAN_SECONDS = 3600.0

# A directory can be removed by a cleaner between our making it and our writing into it.
_ATTEMPTS = 3


def publish(path: Path, data: bytes) -> None:
    """Put `data` at `path`. Raises OSError only if nothing was published."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            written = _write_and_rename(path, data)
        except FileNotFoundError:
            if attempt == _ATTEMPTS:
                raise
        else:
            _sweep(path.parent, now=written)
            return


def _write_and_rename(path: Path, data: bytes) -> float:
    """Returns the file system's own time: its clock and ours can differ by hours."""
    temporary = temporary_path(path)
    # Readable as the umask says, so that others can share a cache; writable by nobody else, and
    # never opened for writing again: processes may have the file mapped.
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    published = False
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            now = os.fstat(descriptor).st_mtime
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
        published = True
    finally:
        if not published:
            with contextlib.suppress(OSError):
                temporary.unlink()
    return now


def _sweep(directory: Path, *, now: float) -> None:
    """Remove what killed writers left here. Nothing that fails in here matters to the entry."""
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            if is_temporary(name):
                remove_orphan(directory / name, now=now)


def remove_orphan(path: Path, *, now: float) -> bool:
    """Remove a temporary file if it is old enough to have no writer; says whether it did."""
    try:
        if now - path.stat(follow_symlinks=False).st_mtime < ORPHAN_SECONDS:
            return False
        path.unlink()
    except OSError:  # somebody else removed it, or it is busy: the next writer tries again
        return False
    return True
