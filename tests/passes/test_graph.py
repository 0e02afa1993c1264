"""The mirror and the MLIR beneath it say the same after each edit."""

from __future__ import annotations

import pytest
from torch_mlir import ir

from neuron_compile.errors import PassError
from neuron_compile.passes.graph import Graph
from tests import oracle

TEXT = """
func.func @main(%x: tensor<2x3xbf16>, %p: tensor<i1>) -> tensor<2x3xf32> {
  %0 = stablehlo.convert %x : (tensor<2x3xbf16>) -> tensor<2x3xf32>
  %1 = stablehlo.negate %0 : tensor<2x3xf32>
  %2 = "stablehlo.if"(%p) ({
    %3 = stablehlo.add %0, %1 : tensor<2x3xf32>
    stablehlo.return %3 : tensor<2x3xf32>
  }, {
    stablehlo.return %1 : tensor<2x3xf32>
  }) : (tensor<i1>) -> tensor<2x3xf32>
  return %2 : tensor<2x3xf32>
}"""


def same(graph: Graph) -> bool:
    """Whether a mirror built anew has the same nodes, operands and users."""
    fresh = Graph(graph.module)

    def shape(g: Graph) -> list[object]:
        names = {value: ("arg", value.index) for value in g.args}
        for node in g.nodes:
            names.update({value: (node.order, value.index) for value in node.results})
        return [
            (node.name, node.order, [names[v] for v in node.operands], node.captures)
            for node in g.nodes
        ] + [
            (names[v], sorted(user.order for user in v.users))
            for v in [*g.args, *(r for n in g.nodes for r in n.results)]
        ]

    return shape(graph) == shape(fresh)


def test_reads_shapes_and_captures() -> None:
    graph = Graph(oracle.parse(TEXT))
    assert [node.name for node in graph.nodes] == ["convert", "negate", "if"]
    assert graph.args[0].nbytes == 12
    assert graph.args[1].nbytes == 1
    choice = graph.nodes[2]
    assert choice.captures == 2
    assert set(choice.operands[1:]) == {graph.nodes[0].result, graph.nodes[1].result}


def test_edits_keep_both_sides_equal() -> None:
    module = oracle.parse(TEXT)
    with module.context, ir.Location.unknown():
        graph = Graph(module)
        negate = graph.nodes[1]
        made = graph.create("abs", [negate.operands[0]], [negate.result.ir.type], before=negate)
        assert same(graph)
        graph.replace(negate.result, made.result)
        graph.prune()
        assert [node.name for node in graph.nodes] == ["convert", "abs", "if"]
        assert same(graph)
        assert module.operation.verify()


def test_replace_can_keep_one_reader() -> None:
    module = oracle.parse(TEXT)
    with module.context, ir.Location.unknown():
        graph = Graph(module)
        convert, negate, _ = graph.nodes
        made = graph.create("abs", [convert.result], [convert.result.ir.type], before=negate)
        graph.replace(convert.result, made.result, keep=made)
        assert made.operands == [convert.result]
        assert negate.operands == [made.result]
        assert same(graph)
        assert module.operation.verify()


def test_merge_equal_respects_attributes() -> None:
    module = oracle.parse("""
func.func @main(%x: tensor<3x3xf32>) -> tensor<3x3xf32> {
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<3x3xf32>) -> tensor<3x3xf32>
  %1 = stablehlo.transpose %x, dims = [0, 1] : (tensor<3x3xf32>) -> tensor<3x3xf32>
  %2 = stablehlo.transpose %x, dims = [1, 0] : (tensor<3x3xf32>) -> tensor<3x3xf32>
  %3 = stablehlo.add %0, %1 : tensor<3x3xf32>
  %4 = stablehlo.add %3, %2 : tensor<3x3xf32>
  return %4 : tensor<3x3xf32>
}""")
    with module.context, ir.Location.unknown():
        graph = Graph(module)
        graph.merge_equal()
        assert [node.name for node in graph.nodes] == ["transpose", "transpose", "add", "add"]
        assert same(graph)


def test_a_module_without_main_is_an_error() -> None:
    with pytest.raises(PassError, match="@main"):
        Graph(oracle.parse("func.func @other() { return }"))
