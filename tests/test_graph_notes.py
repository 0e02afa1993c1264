"""What is noted of a graph: the user's function and names, through Dynamo and AOTAutograd."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch

import neuron_compile
from neuron_compile.cache.notes import INPUT, WEIGHT, InputNote, recorded_notes
from neuron_compile.compiler import forget_executables
from neuron_compile.neff.reader import read


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(tmp_path))
    forget_executables()
    torch._dynamo.reset()
    return tmp_path


class Head(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())

    def forward(self, x):
        return self.layers(x)


class Renamed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.other = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())

    def forward(self, y):
        return self.other(y)


def logged(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


def twice(x):
    return x * 2


@logged
def decorated(x):
    return x * 5


def notes_below(root: Path, kind: str = ""):
    read_all = [read(path).provenance for path in root.rglob("*.neff")]
    found = [p for p in read_all if not kind or p["key.aot.kind"] == f"='{kind}'"]
    assert len(found) == 1
    return recorded_notes(found[0])


def test_module_and_parameters_have_the_users_names(root: Path) -> None:
    with torch.no_grad():
        torch.compile(Head(), backend="neuron")(torch.ones(2, 4))
    found = notes_below(root)
    assert found.function == "Head.forward"
    assert set(found.inputs) == {
        InputNote(WEIGHT, "layers.0.weight"),
        InputNote(WEIGHT, "layers.0.bias"),
        InputNote(INPUT, "x"),
    }
    assert found.graph.count("placeholder") == 3


def test_symbolic_sizes_keep_the_names(root: Path) -> None:
    with torch.no_grad():
        torch.compile(Head(), backend="neuron", dynamic=True)(torch.ones(2, 4))
    found = notes_below(root)
    assert found.function == "Head.forward"
    assert InputNote(INPUT, "x") in found.inputs
    assert InputNote(WEIGHT, "layers.0.weight") in found.inputs


def test_backward_has_names_for_what_has_one(root: Path) -> None:
    torch.compile(Head(), backend="neuron")(torch.ones(2, 4, requires_grad=True)).sum().backward()
    found = notes_below(root, "backward")
    assert found.function == "Head.forward"
    assert InputNote(WEIGHT, "layers.0.weight") in found.inputs
    assert InputNote("other", "gradient") in found.inputs


@pytest.mark.parametrize(("function", "name"), [(twice, "twice"), (decorated, "decorated")])
def test_function_has_its_name_not_that_of_a_decorators_wrapper(root: Path, function, name) -> None:
    torch.compile(function, backend="neuron")(torch.ones(3))
    assert notes_below(root).function == name


def test_equal_graphs_of_other_names_share_an_entry(root: Path) -> None:
    neuron_compile.reset_stats()
    with torch.no_grad():
        torch.compile(Head(), backend="neuron")(torch.ones(2, 4))
        forget_executables()
        torch.compile(Renamed(), backend="neuron")(torch.ones(2, 4))
    assert neuron_compile.stats()["disk_hits"] == 1
    assert notes_below(root).function == "Head.forward"
