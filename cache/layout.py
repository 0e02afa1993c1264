"""The names of files and directories in a cache, and which of them readers look at.

In: a root, a target and a key. Out: paths. Invariant: an entry's name is `<64 hex digits>.neff`;
everything unfinished or set aside begins with a dot, so no reader and no listing takes it for an
entry.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from neuron_compile.cache.key import Key

# The layout's version, not the compiler's: it changes only if these names change.
VERSION = "v1"
LOCKS = "locks"

_HASH = r"[0-9a-f]{64}"
_ENTRY_NAME = re.compile(rf"({_HASH})\.neff")
_TEMPORARY_NAME = re.compile(rf"\.{_HASH}\.[0-9a-f]{{16}}\.tmp")
_QUARANTINED_NAME = re.compile(rf"\.{_HASH}\.bad")
_GRAPH_NAME = re.compile(_HASH)


@dataclass(frozen=True, slots=True)
class Found:
    """A file below a cache root. `kind` is `entry`, `temporary` or `quarantined`."""

    path: Path
    kind: str
    target: str
    graph_hash: str
    shape_signature: str
    size: int
    modified: float


def entry_path(root: Path, target: str, key: Key) -> Path:
    """`<root>/v1/<target>/<graph hash 2>/<graph hash>/<shape signature>.neff`."""
    graph = key.graph_hash
    return (
        root / VERSION / directory_name(target) / graph[:2] / graph / f"{key.shape_signature}.neff"
    )


def directory_name(target: str) -> str:
    """The target as one path component. Targets may share one: keys hold the target."""
    plain = re.sub(r"[^A-Za-z0-9._+-]", "-", target)[:100]
    return plain if plain.strip(".") else f"target-{plain}"


def path_target(entry: Path) -> str:
    """The target's component of an entry's path."""
    return entry.parent.parent.parent.name


def lock_path(lock_root: Path, target: str, key: Key) -> Path:
    name = f"{key.graph_hash[:32]}-{key.shape_signature[:32]}.lock"
    return lock_root / VERSION / LOCKS / directory_name(target) / name


def temporary_path(entry: Path) -> Path:
    """A name in the entry's directory that nobody else uses."""
    return entry.with_name(f".{entry.stem}.{secrets.token_hex(8)}.tmp")


def quarantine_path(entry: Path) -> Path:
    """One name for each entry: however often it is damaged, at most one copy is kept."""
    return entry.with_name(f".{entry.stem}.bad")


def is_temporary(name: str) -> bool:
    return _TEMPORARY_NAME.fullmatch(name) is not None


def walk(root: Path) -> Iterator[Found]:
    """Every file of ours below `root`; what vanishes meanwhile or cannot be read is left out."""
    for target in _names(root / VERSION):
        if target == LOCKS:
            continue
        for two in _names(root / VERSION / target):
            for graph in _names(root / VERSION / target / two):
                if _GRAPH_NAME.fullmatch(graph):
                    yield from files(root / VERSION / target / two / graph)


def files(directory: Path) -> Iterator[Found]:
    """The files of ours in the directory of one graph."""
    for name in _names(directory):
        kind = _kind(name)
        if kind is None:
            continue
        path = directory / name
        try:
            status = path.stat(follow_symlinks=False)
        except (
            OSError
        ):  # deleted meanwhile, or a stale handle: not there, as far as we are concerned
            continue
        yield Found(
            path=path,
            kind=kind,
            target=path_target(path),
            graph_hash=directory.name,
            shape_signature=name.lstrip(".")[:64],
            size=status.st_size,
            modified=status.st_mtime,
        )


def _kind(name: str) -> str | None:
    if _ENTRY_NAME.fullmatch(name):
        return "entry"
    if _TEMPORARY_NAME.fullmatch(name):
        return "temporary"
    return "quarantined" if _QUARANTINED_NAME.fullmatch(name) else None


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
