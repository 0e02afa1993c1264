"""Artifacts of a compilation, for people who want to look inside.

In: a directory (or none) and the texts of each stage. Out: files below `fx_graphs/`, `stablehlo/`,
`kernels/` and `neff/`. Invariants: nothing is written without a directory; no two processes share a
file; a directory that cannot be written gives one warning, never a failed compilation.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from neuron_compile.cache.warn_once import warn_once

FOLDERS = ("fx_graphs", "stablehlo", "kernels", "neff")

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
# Enough of a hash to tell graphs apart by eye; the counter keeps names unique whatever it says.
_HASH_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Artifacts:
    """Where one compilation leaves its artifacts. `stem` is `<model>_<kind>_<graph hash>`."""

    root: Path | None
    stem: str = ""

    def write(self, folder: str, suffix: str, content: Callable[[], str | bytes]) -> None:
        """Write `<folder>/<stem>_<counter><suffix>`; `content` is only asked where it is
        written.
        """
        if self.root is None:
            return
        made = content()
        data = made.encode() if isinstance(made, str) else made
        try:
            _write_new(self.root / folder, self.stem, suffix, data)
        except OSError as error:
            warn_once(
                f"artifacts:{self.root}",
                f"cannot write compilation artifacts to {self.root}: {error}; set "
                "TORCH_NEURONX_DEBUG_DIR to a directory that can be written",
            )


def artifacts(root: Path | None, model: str, kind: str, graph_hash: str) -> Artifacts:
    """The artifacts of one graph; the names are made fit for files."""
    name = _UNSAFE.sub("_", model) or "graph"
    return Artifacts(root, f"{name}_{kind}_{graph_hash[:_HASH_DIGITS]}")


def _write_new(folder: Path, stem: str, suffix: str, data: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for counter in itertools.count():
        path = folder / f"{stem}_{counter}{suffix}"
        try:
            # Exclusive creation is what gives two processes two counters.
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            continue
        with open(descriptor, "wb") as file:
            file.write(data)
        return
