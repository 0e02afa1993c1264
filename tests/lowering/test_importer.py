"""Where two kinds of values meet during import, and what the importer refuses."""

from __future__ import annotations

import operator
import subprocess
import sys

import pytest
import torch
import torch.fx
from torch.fx.experimental.proxy_tensor import make_fx

from neuron_compile.errors import LoweringError
from neuron_compile.lowering.context import new_context
from neuron_compile.lowering.importer import import_graph
from neuron_compile.lowering.torch_mlir_road import finish_torch_ops

aten = torch.ops.aten


def trace(function, *args) -> torch.fx.GraphModule:
    return make_fx(lambda *t: (function(*t),), tracing_mode="fake")(*args)


def test_casts_stand_only_where_the_two_kinds_meet() -> None:
    def mixed(x: torch.Tensor) -> torch.Tensor:
        once = aten.pixel_shuffle.default(x.sin(), 2)
        return aten.pixel_shuffle.default(aten.pixel_shuffle.default(once, 1), 1).cos()

    with new_context():
        imported = import_graph(trace(mixed, torch.randn(1, 4, 2, 2)))
        text = str(imported.module)
        assert len(imported.torch_ops) == 3
        assert text.count("torch_c.from_builtin_tensor") == 1
        assert text.count("torch_c.to_builtin_tensor") == 1
        finish_torch_ops(imported.module, imported.torch_ops)
        assert "torch" not in str(imported.module)


def test_a_graph_of_ours_has_no_torch_dialect() -> None:
    with new_context():
        imported = import_graph(trace(lambda x: x.softmax(-1) @ x, torch.randn(3, 3)))
        assert imported.torch_ops == ()
        assert "torch" not in str(imported.module)


def test_what_torch_mlir_refuses_is_named_with_its_line() -> None:
    graph = trace(lambda x: aten.special_airy_ai.default(x), torch.randn(2))
    node = next(n for n in graph.graph.nodes if n.op == "call_function")
    node.meta["stack_trace"] = '  File "mine.py", line 7, in forward\n    airy\n'
    with new_context():
        imported = import_graph(graph)
        with pytest.raises(LoweringError) as caught:
            finish_torch_ops(imported.module, imported.torch_ops)
    assert "aten.special_airy_ai.default" in caught.value.what
    assert caught.value.where == "mine.py:7"


def test_results_of_several_are_picked() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        values, indices = x.max(1)
        return values + indices

    with new_context():
        text = str(import_graph(trace(function, torch.randn(2, 3))).module)
        assert text.count("stablehlo.reduce(") == 1


def test_functions_that_are_no_operators_are_refused() -> None:
    graph = trace(lambda x: x.sin(), torch.randn(2))
    next(n for n in graph.graph.nodes if n.op == "call_function").target = operator.neg
    with new_context(), pytest.raises(LoweringError, match="is no aten operator"):
        import_graph(graph)


def test_attributes_that_are_no_tensors_are_refused() -> None:
    graph = trace(lambda x: x.sin(), torch.randn(2))
    graph.held = torch.nn.Module()
    first = next(n for n in graph.graph.nodes if n.op == "call_function")
    with graph.graph.inserting_before(first):
        graph.graph.get_attr("held")
    with new_context(), pytest.raises(LoweringError, match="attribute held is a Module"):
        import_graph(graph)


def test_the_applications_logging_is_left_alone() -> None:
    """Torch-MLIR would give the root logger a handler, and `basicConfig` then does nothing."""
    program = """
import logging, torch
from neuron_compile.lowering import lower
from torch.fx.experimental.proxy_tensor import make_fx
lower(make_fx(lambda x: (x + 1,), tracing_mode="fake")(torch.ones(2)))
assert not logging.getLogger().handlers
"""
    subprocess.run([sys.executable, "-c", program], check=True)
