"""Symbolic sizes to concrete graphs."""

from __future__ import annotations

import threading

import pytest
import torch

from neuron_compile import specialize
from neuron_compile.cache.warn_once import forget_warnings
from neuron_compile.errors import LoweringError
from neuron_compile.specialize import (
    Argument,
    concrete_graph,
    concrete_size,
    is_dynamic,
    specializing_callable,
)
from tests.graphs import aten_graph, dynamic_graph


def f(x):
    n, m = x.shape
    return x.view(-1) * n, torch.arange(n + 1), x.t().expand(2, m, n), n * m


def describe(*values) -> list[Argument]:
    return [
        Argument(None, tuple(v.shape), v.stride()) if isinstance(v, torch.Tensor) else Argument(v)
        for v in values
    ]


def arguments_of(graph, x) -> list:
    """Values for the placeholders: sizes of x for its symbols, in order of first appearance."""
    sizes = iter(dict.fromkeys(x.shape))
    return [
        x if isinstance(n.meta["val"], torch.Tensor) else next(sizes)
        for n in graph.graph.find_nodes(op="placeholder")
    ]


def test_a_static_graph_is_not_dynamic() -> None:
    assert not is_dynamic(aten_graph(lambda x: x + 1, torch.ones(3)))
    assert is_dynamic(dynamic_graph(f, torch.ones(3, 4)))


@pytest.mark.parametrize("size", [(5, 7), (2, 3), (6, 2)])
def test_every_number_becomes_concrete(size) -> None:
    graph = dynamic_graph(f, torch.ones(3, 4))
    before = str(graph.graph)
    x = torch.randn(size)
    values = arguments_of(graph, x)
    concrete = concrete_graph(graph, describe(*values))
    assert str(graph.graph) == before
    for node in concrete.graph.nodes:
        if isinstance(node.meta.get("val"), torch.Tensor):
            assert all(
                type(n) is int for n in (*node.meta["val"].shape, *node.meta["val"].stride())
            )
    assert not any("sym_size" in str(n.target) for n in concrete.graph.nodes)
    expected = f(x)
    result = concrete(*values)
    for a, b in zip(result, expected, strict=True):
        assert torch.equal(torch.as_tensor(a), torch.as_tensor(b))
    for node, b in zip(concrete.graph.output_node().args[0][:3], expected, strict=False):
        assert tuple(node.meta["val"].shape) == b.shape
        assert node.meta["val"].stride() == b.stride()


def test_strides_of_the_arguments_are_kept() -> None:
    graph = dynamic_graph(lambda x: x + 1, torch.ones(3, 4))
    x = torch.randn(6, 5).t()
    concrete = concrete_graph(graph, describe(*arguments_of(graph, x)))
    [result] = concrete.graph.output_node().args[0]
    assert result.meta["val"].stride() == (1, 5)


def test_source_lines_survive() -> None:
    graph = dynamic_graph(lambda x: x + 1, torch.ones(3, 4))
    concrete = concrete_graph(graph, describe(*arguments_of(graph, torch.ones(5, 4))))
    [add] = [n for n in concrete.graph.nodes if n.op == "call_function"]
    assert "test_specialize.py" in add.meta["stack_trace"]


def test_one_graph_per_layout_however_many_threads_ask() -> None:
    graph = dynamic_graph(lambda x: (x * 2, x.shape[0] * 4), torch.ones(3, 4))
    made = []

    def make(concrete, arguments):
        made.append(arguments)

        def run(args):
            return concrete(*args)

        return run

    call = specializing_callable(graph, make)
    assert call._boxed_call
    results = []

    def work() -> None:
        results.extend(call(arguments_of(graph, torch.ones(n, 4)))[1] == 4 * n for n in (5, 6, 5))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 12
    assert len(made) == 2
    call(arguments_of(graph, torch.ones(4, 5).t()))
    assert len(made) == 3


def test_old_sizes_are_let_go_and_many_sizes_get_advice(monkeypatch, caplog) -> None:
    forget_warnings()
    monkeypatch.setattr(specialize, "_KEPT", 2)
    monkeypatch.setattr(specialize, "_MANY", 3)
    graph = dynamic_graph(lambda x: x * 2, torch.ones(3, 4))
    made = []

    def make(concrete, arguments):
        made.append(arguments)
        return lambda args: concrete(*args)

    call = specializing_callable(graph, make)
    for n in (5, 6, 6, 5):
        call(arguments_of(graph, torch.ones(n, 4)))
    assert len(made) == 2
    assert "different sizes" not in caplog.text
    for n in (7, 6, 5):
        call(arguments_of(graph, torch.ones(n, 4)))
    assert len(made) == 4
    assert caplog.text.count("compiled for 3 different sizes") == 1


def test_ambient_tracing_of_the_caller_does_not_matter() -> None:
    graph = dynamic_graph(lambda x: x * 2, torch.ones(3, 4))
    values = arguments_of(graph, torch.ones(5, 4))
    with torch.inference_mode(), torch.device("meta"):
        concrete = concrete_graph(graph, describe(*values))
    [result] = concrete.graph.output_node().args[0]
    assert result.meta["val"].device.type == "cpu"


def test_sizes_follow_from_the_arguments() -> None:
    graph = dynamic_graph(f, torch.ones(3, 4))
    metas = [n.meta["val"] for n in graph.graph.find_nodes(op="placeholder")]
    values = describe(*arguments_of(graph, torch.ones(5, 7)))
    product = graph.graph.output_node().args[0][3].meta["val"]
    assert concrete_size(product, metas, values) == 35
    assert concrete_size(12, metas, values) == 12


def test_size_that_depends_on_data_is_refused() -> None:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    with pytest.raises(LoweringError, match="depends on data"):
        concrete_size(ShapeEnv().create_unbacked_symint(), [], [])
