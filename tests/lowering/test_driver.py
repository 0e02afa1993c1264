"""The module that lowering hands over keeps its contract."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from neuron_compile.errors import LoweringError
from neuron_compile.lowering import lower
from neuron_compile.lowering.registry import rule_for
from tests.lowering.single_op import check

aten = torch.ops.aten


def trace(function, *args) -> torch.fx.GraphModule:
    def flat(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = function(*tensors)
        return made if isinstance(made, tuple) else (made,)

    return make_fx(flat, tracing_mode="fake")(*args)


def text(graph: torch.fx.GraphModule) -> str:
    return str(lower(graph).module)


def test_one_public_main_over_static_tensors() -> None:
    made = text(trace(lambda x, y: (x + y, x @ y), torch.randn(3, 3), torch.randn(3, 3)))
    assert made.count("func.func") == 1
    assert "func.func @main(%arg0: tensor<3x3xf32>, %arg1: tensor<3x3xf32>)" in made
    assert "-> (tensor<3x3xf32>, tensor<3x3xf32>)" in made


def test_only_stablehlo_is_left() -> None:
    def mixed(x: torch.Tensor) -> torch.Tensor:
        return aten.pixel_shuffle.default(x.sin(), 2) + 1

    made = text(trace(mixed, torch.randn(1, 4, 2, 2)))
    dialects = set(re.findall(r"= (\w+)\.", made))
    assert dialects == {"stablehlo"}


def test_torch_mlir_and_our_emitters_mix() -> None:
    def mixed(x: torch.Tensor) -> torch.Tensor:
        y = aten.pixel_shuffle.default(x.sin(), 2)
        return aten.pixel_shuffle.default(y.reshape(1, 4, 2, 2) + y.sum(), 2).exp()

    check(mixed, torch.randn(1, 4, 2, 2))


def test_graph_is_left_alone() -> None:
    graph = trace(lambda x: x.as_strided((2,), (2,)) + 1, torch.randn(4))
    before = graph.code
    text(graph)
    assert graph.code == before


def test_strides_of_arguments_and_results() -> None:
    made = text(trace(lambda x: x * 2, torch.randn(3, 4).t()))
    assert made.count("neuron.strides = array<i64: 1, 4>") == 2
    assert "neuron.strides" not in text(trace(lambda x: x * 2, torch.randn(3, 4)))


def test_locations_are_the_users_lines() -> None:
    graph = trace(lambda x: x.sin().cos(), torch.randn(3))
    for node in graph.graph.nodes:
        if "sin" in str(node.target):
            node.meta["stack_trace"] = '  File "mine.py", line 7, in forward\n    x.sin()\n'
        else:
            node.meta.pop("stack_trace", None)
    made = lower(graph).module.operation.get_asm(enable_debug_info=True)
    line = re.search(r"(#loc\d*) = loc\(\"mine.py\":7:0\)", made)
    assert line
    assert re.search(rf"stablehlo.sine .* loc\({line[1]}\)", made)
    # A node without a trace belongs to the one before it.
    assert re.search(rf"stablehlo.cosine .* loc\({line[1]}\)", made)


def test_constants_of_the_graph_become_constants() -> None:
    graph = trace(lambda x: x + x, torch.randn(2))
    graph.register_buffer("held", torch.tensor([1.5, -2.0]))
    add = next(n for n in graph.graph.nodes if n.op == "call_function")
    with graph.graph.inserting_before(add):
        held = graph.graph.get_attr("held")
    held.meta["val"] = add.meta["val"]
    add.args = (add.args[0], held)
    assert "dense<[1.500000e+00, -2.000000e+00]>" in text(graph)


def test_random_state_is_the_last_argument_only_where_used() -> None:
    plain = lower(trace(lambda x: x + 1, torch.randn(2)))
    assert not plain.uses_random


def test_a_faulty_emitter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = rule_for(aten.sin.default)
    assert rule is not None
    faulty = dataclasses.replace(rule, emit=lambda b, x: b.convert(x, torch.float64))
    monkeypatch.setattr("neuron_compile.lowering.importer.rule_for_node", lambda _: faulty)
    with pytest.raises(LoweringError, match=r"aten.sin.default made tensor<2xf64> where"):
        lower(trace(lambda x: x.sin(), torch.randn(2)))
