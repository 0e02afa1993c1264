"""What compiles: a digest of this package's sources, and the versions of PyTorch and Torch-MLIR.

In: nothing. Out: texts for the cache key. Invariant: other sources give another digest; the same
sources give the same one wherever they lie (checkout, wheel, editable install). Neither a stage nor
torch_mlir is imported for it.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
from functools import cache
from pathlib import Path

import neuron_compile

STAGES = ("lowering", "passes", "neff", "cache")

# PyTorch gives operators their meaning, Torch-MLIR carries MLIR and LLVM.
COMPILERS = ("torch", "torch-mlir")


@cache
def source_digest() -> str:
    """SHA-256 over the names and contents of all Python files of the package; once in a process.

    Also the front door counts, not only the stages: it rewrites the graph before it is lowered, and
    reads what the stages have written. Raises RuntimeError if there are no sources (an installation
    of byte code only).
    """
    folders = {"": Path(neuron_compile.__file__).parent}
    folders |= {stage: _stage_folder(stage) for stage in STAGES}
    digest = hashlib.sha256()
    for stage, folder in folders.items():
        for name, content in _sources(folder):
            # In a wheel the stages lie inside the package: there they are met twice, once is
            # enough.
            if stage or name.split("/")[0] not in STAGES:
                digest.update(f"{stage}/{name}:{len(content)}:".encode() + content)
    return digest.hexdigest()


def _stage_folder(stage: str) -> Path:
    # find_spec imports the parent package only, which is imported already.
    spec = importlib.util.find_spec(f"neuron_compile.{stage}")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(f"neuron_compile.{stage} is not installed: reinstall neuron-compile")
    return Path(spec.submodule_search_locations[0])


def _sources(folder: Path) -> list[tuple[str, bytes]]:
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.py"))
    if not names:
        raise RuntimeError(f"there are no Python sources in {folder}: reinstall neuron-compile")
    return [(name, (folder / name).read_bytes()) for name in names]


@cache
def versions() -> tuple[tuple[str, str], ...]:
    """(distribution, version) of what the emitted code depends on besides our sources.

    Raises RuntimeError if one has no recorded version.
    """
    found = []
    for name in COMPILERS:
        try:
            found.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            raise RuntimeError(f"the version of {name} is unknown: install its wheel") from None
    return tuple(found)
