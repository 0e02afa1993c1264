"""Looking after a cache: list, count, verify, delete, keep within a size.

In: a root. Out: records to print. Invariant: safe while other processes read and write; what
vanishes or cannot be removed is reported, not raised.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from neuron_compile.cache.layout import LOCKS, VERSION, Found, directory_name, walk
from neuron_compile.cache.publish import ORPHAN_SECONDS
from neuron_compile.cache.store import Miss, Store

# Nobody compiles for a day: such a lock file was left by a process that was killed.
_OLD_LOCK_SECONDS = 24 * 3600.0

Checked = TypeVar("Checked")


@dataclass(frozen=True, slots=True)
class Usage:
    """What lies below a root. `unfinished` are temporary files, of living and of killed writers."""

    entries: int
    entry_bytes: int
    targets: tuple[tuple[str, int], ...]  # (target, number of entries), by name
    unfinished: int
    quarantined: int
    other_bytes: int  # of the unfinished and the quarantined


@dataclass(frozen=True, slots=True)
class Fault:
    """An entry that `verify` refuses, and why."""

    path: Path
    detail: str


@dataclass(frozen=True, slots=True)
class Removal:
    """`failed` holds (path, reason) of what is still there."""

    removed: tuple[Path, ...]
    freed_bytes: int
    failed: tuple[tuple[Path, str], ...]


def entries(root: Path) -> Iterator[Found]:
    """Every entry below `root`, of all targets, by path."""
    return (found for found in walk(root) if found.kind == "entry")


def usage(root: Path) -> Usage:
    found = list(walk(root))
    stored = [item for item in found if item.kind == "entry"]
    targets = sorted({item.target for item in stored})
    return Usage(
        entries=len(stored),
        entry_bytes=sum(item.size for item in stored),
        targets=tuple((t, sum(item.target == t for item in stored)) for t in targets),
        unfinished=sum(item.kind == "temporary" for item in found),
        quarantined=sum(item.kind == "quarantined" for item in found),
        other_bytes=sum(item.size for item in found if item.kind != "entry"),
    )


def verify(store: Store[Checked]) -> list[Fault]:
    """Check every entry of the store's target; nothing is changed."""
    faults = []
    for found in entries(store.root):
        if found.target == directory_name(store.target):
            seen = store.peek(found.path)
            if isinstance(seen, Miss) and seen.reason != "absent":  # deleted since it was listed
                faults.append(Fault(found.path, seen.detail))
    return faults


def delete(root: Path, prefix: str) -> Removal:
    """Delete the entries whose graph hash begins with `prefix`, which must not be empty."""
    if not prefix:
        raise ValueError("name the beginning of a graph hash; `clear` deletes everything")
    return _remove(root, [f for f in walk(root) if f.graph_hash.startswith(prefix)])


def clear(root: Path) -> Removal:
    """Delete all entries, and what killed writers and damaged entries left.

    Only files that have our names, below `<root>/v1`, are touched, whatever else lies there.
    """
    return _remove(root, list(walk(root)))


def gc(
    root: Path,
    *,
    max_bytes: int | None = None,
    max_age: float | None = None,
    now: float | None = None,
) -> Removal:
    """Delete what is unused for `max_age` seconds, then the longest unused above `max_bytes`.

    A hit counts as use (to within six hours). Orphans, damaged entries that were set aside and old
    lock files go in any case.
    """
    now = time.time() if now is None else now
    found = list(walk(root))
    doomed = [f for f in found if f.kind != "entry" and now - f.modified > ORPHAN_SECONDS]
    kept = sorted((f for f in found if f.kind == "entry"), key=lambda f: f.modified, reverse=True)
    if max_age is not None:
        doomed += [f for f in kept if now - f.modified > max_age]
        kept = [f for f in kept if now - f.modified <= max_age]
    if max_bytes is not None:
        total = 0
        for entry in kept:
            total += entry.size
            if total > max_bytes:
                doomed.append(entry)
    remove_old_locks(root, now=now)
    return _remove(root, doomed)


def remove_old_locks(lock_root: Path, *, now: float) -> None:
    """Remove lock files of killed processes; `gc` does it for those below its root."""
    with contextlib.suppress(OSError):
        for path in (lock_root / VERSION / LOCKS).glob("*/*.lock"):
            with contextlib.suppress(OSError):
                if now - path.stat().st_mtime > _OLD_LOCK_SECONDS:
                    path.unlink()


def _remove(root: Path, doomed: Iterable[Found]) -> Removal:
    removed, failed, freed = [], [], 0
    for found in doomed:
        try:
            found.path.unlink()
        except FileNotFoundError:  # another cleaner was faster
            continue
        except (
            OSError
        ) as error:  # busy, a stale handle, not permitted: the rest must still go (T132)
            failed.append((found.path, str(error)))
            continue
        removed.append(found.path)
        freed += found.size
        _remove_empty(found.path.parent, root / VERSION)
    return Removal(tuple(removed), freed, tuple(failed))


def _remove_empty(directory: Path, stop: Path) -> None:
    """Remove the empty directories from here up to `stop`; writers make them anew."""
    with contextlib.suppress(OSError):
        while directory != stop:
            directory.rmdir()
            directory = directory.parent
