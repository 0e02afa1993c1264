"""The user's line is the innermost frame outside torch."""

from __future__ import annotations

import os

import torch
import torch.fx
from torch_mlir import ir

from neuron_compile.lowering import locations

TORCH_FILE = os.path.join(os.path.dirname(torch.__file__), "nn", "functional.py")


def node(**meta) -> torch.fx.Node:
    made = torch.fx.Graph().placeholder("x")
    made.meta.update(meta)
    return made


def trace(*frames: tuple[str, int]) -> str:
    return "".join(f'  File "{file}", line {line}, in f\n    code\n' for file, line in frames)


def test_frames_of_torch_are_passed_over() -> None:
    made = node(stack_trace=trace(("model.py", 10), ("layer.py", 20), (TORCH_FILE, 30)))
    assert locations.source_line(made) == ("layer.py", 20)


def test_torch_is_named_when_there_is_nothing_else() -> None:
    assert locations.source_line(node(stack_trace=trace((TORCH_FILE, 30)))) == (TORCH_FILE, 30)


def test_without_a_trace_there_is_no_line() -> None:
    assert locations.source_line(node()) is None
    assert locations.describe(node()) == "unknown source line"
    with ir.Context() as context:
        assert locations.location(node(), context) is None


def test_description_names_line_and_module() -> None:
    made = node(
        stack_trace=trace(("model.py", 10)),
        nn_module_stack={"a": ("", object), "b": ("L['self'].head", object)},
    )
    assert locations.describe(made) == "model.py:10 (in L['self'].head)"


def test_location_is_the_line() -> None:
    with ir.Context() as context:
        found = locations.location(node(stack_trace=trace(("model.py", 10))), context)
        assert str(found) == 'loc("model.py":10:0)'


def test_names_of_files_that_are_not_utf_8_are_located() -> None:
    made = node(stack_trace=trace((os.fsdecode(b"m\xff.py"), 10)))
    with ir.Context() as context:
        assert 'm?.py":10' in str(locations.location(made, context))
