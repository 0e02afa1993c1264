"""Holds the table of who may import what: from the front door down to the cache, never upwards."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.source_tree import STAGES, closure, imports, modules

KNOWN = modules()

# Rows from top to bottom: a row may import the rows below it, and these packages from outside.
LAYERS = ("front", "lowering", "passes", "neff", "cache", "errors")
OUTSIDE = {
    "front": {"torch", "torch_mlir", "numpy", "filelock", "rich", "typer"},
    "lowering": {"torch", "torch_mlir", "numpy"},
    "passes": {"torch_mlir", "numpy"},
    "neff": {"torch_mlir", "numpy", "elftools"},
    "cache": {"filelock"},
    "errors": set(),
    # bfloat16 arrays come as ml_dtypes' type where that package happens to be installed
    "runtime": {"numpy", "ml_dtypes"},
}
HEAVY = {"torch", "torch_mlir", "elftools", "filelock", "rich", "typer"}


def layer(module: str) -> str:
    parts = module.split(".")
    if module == "neuron_compile.errors":
        return "errors"
    if len(parts) > 1 and parts[1] in (*STAGES, "runtime"):
        return parts[1]
    return "front"


def may_import(importer: str, imported: str) -> bool:
    if imported == "errors" or importer == imported:
        return True
    if importer == "runtime":
        return imported == "neff"
    if imported == "runtime":
        return importer == "front"
    return LAYERS.index(importer) < LAYERS.index(imported)


def test_every_stage_has_modules() -> None:
    missing = {*STAGES, "runtime", "front"} - {layer(name) for name in KNOWN}
    assert not missing


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_imports_run_downwards(name: str) -> None:
    wrong = []
    for found in imports(name, KNOWN):
        top = found.module.split(".")[0]
        if top == "neuron_compile":
            if not may_import(layer(name), layer(found.module)):
                wrong.append(f"{found.where}: {layer(name)} must not import {found.module}")
        elif top not in sys.stdlib_module_names and top not in OUTSIDE[layer(name)]:
            wrong.append(f"{found.where}: {layer(name)} must not import {found.module}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "start",
    ["neuron_compile", "neuron_compile.neff.reader", "neuron_compile.runtime.numpy_api"],
)
def test_reading_and_running_a_neff_reaches_no_compiler(start: str) -> None:
    chains = closure(start, KNOWN)
    heavy = [
        " -> ".join(chain) for module, chain in chains.items() if module.split(".")[0] in HEAVY
    ]
    assert not heavy, "\n".join(heavy)


def test_the_cache_stands_alone() -> None:
    for name in KNOWN:
        if layer(name) == "cache":
            reached = {
                layer(m) for m in closure(name, KNOWN) if m in KNOWN and m != "neuron_compile"
            }
            assert reached <= {"cache", "errors"}, name


def test_a_wrong_direction_is_seen(tmp_path: Path) -> None:
    """The checker itself: it sees an import inside a function, and not one for type checkers."""
    assert not may_import("cache", "neff")
    assert not may_import("neff", "passes")
    assert not may_import("runtime", "lowering")
    assert may_import("front", "cache")
    assert may_import("passes", "neff")
    source = Path(__file__).parent / "data" / "imports_sample.py"
    found = {
        item.module for item in imports("neuron_compile.sample", {"neuron_compile.sample": source})
    }
    assert found == {
        "json",
        "numpy",
        "neuron_compile.cache",
        "typing",
        "neuron_compile.neff.reader",
    }
