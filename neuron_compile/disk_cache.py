"""The cache on disk as this package uses it: where it lies, and what counts as a sound entry.

In: the environment and a target. Out: a `Store` of checked NEFFs. Invariant: imports neither torch
nor torch_mlir, so that the command line is quick and a hit stays cheap.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from neuron_compile.cache.location import default_root
from neuron_compile.cache.store import Store
from neuron_compile.environment import Environment
from neuron_compile.neff import reader
from neuron_compile.neff.schema import Neff
from neuron_compile.neff.target import Target


def cache_root(environment: Environment) -> Path | None:
    """The cache's directory; None if none is named and the user has no place for one."""
    return environment.cache_dir or default_root()


def open_store(
    root: Path,
    target: Target,
    lock_root: Path | None = None,
    *,
    read: Callable[[bytes], Neff] = reader.read,
) -> Store[Neff]:
    """The entries for `target` below `root`; `read` checks the whole NEFF, or more than that."""
    return Store(
        root,
        target.name,
        read,
        provenance_of=lambda neff: neff.provenance,
        lock_root=lock_root,
    )
