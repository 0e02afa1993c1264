"""What is compiled of a graph, and what each call does around it."""

from __future__ import annotations

import pytest
import torch

from neuron_compile.call_plan import OutputRule, Source, plan
from neuron_compile.errors import LoweringError
from tests.graphs import aten_graph


def planned(function, *args, rules=None):
    graph = aten_graph(function, *args)
    count = len(graph.graph.output_node().args[0])
    before = graph.code
    result = plan(graph, rules or [OutputRule()] * count)
    assert graph.code == before
    return result


def sources(call_plan) -> list[Source]:
    return [item.source for item in call_plan.returned]


def operators(graph) -> list[str]:
    return [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]


def test_none_numbers_and_inputs_are_not_compiled() -> None:
    graph, found = planned(lambda x, y: (x, None, 3, y + 1, True), torch.ones(2), torch.ones(2))
    assert sources(found) == [
        Source.ARGUMENT,
        Source.GIVEN,
        Source.GIVEN,
        Source.OUTPUT,
        Source.GIVEN,
    ]
    assert found.arguments == (1,)
    assert len(graph.graph.find_nodes(op="placeholder")) == 1
    assert [item.value for item in found.returned][1:3] == [None, 3]


def test_duplicates_are_computed_once() -> None:
    def f(x):
        y = x + 1
        return y, y, x * 2

    graph, found = planned(f, torch.ones(2))
    assert [item.index for item in found.returned] == [0, 0, 1]
    assert len(graph.graph.output_node().args[0]) == 2


def test_dead_code_is_dropped() -> None:
    def f(x, y):
        y.exp()
        return x + 1

    graph, found = planned(f, torch.ones(2), torch.ones(2))
    assert operators(graph) == ["aten.add.Tensor"]
    assert found.arguments == (0,)


def test_view_of_an_input_is_made_per_call() -> None:
    graph, found = planned(lambda x: (x.t()[1:],), torch.ones(2, 3))
    [item] = found.returned
    assert item.source is Source.ARGUMENT_VIEW
    assert item.layout.size == (2, 2)
    assert item.layout.stride == (1, 3)
    assert item.layout.offset == 1
    assert not found.outputs
    assert not operators(graph)


def test_the_only_view_of_a_result_costs_nothing() -> None:
    graph, found = planned(lambda x: ((x + 1).t(),), torch.ones(2, 3))
    assert sources(found) == [Source.OUTPUT]
    assert found.outputs[0].size == (3, 2)
    assert found.outputs[0].stride == (1, 3)
    assert operators(graph) == ["aten.add.Tensor"]


def test_partial_view_of_a_result_is_a_view() -> None:
    graph, found = planned(lambda x: ((x + 1)[:, 1:],), torch.ones(2, 3))
    assert sources(found) == [Source.OUTPUT_VIEW]
    assert found.outputs[0].size == (2, 3)
    assert operators(graph) == ["aten.add.Tensor"]


def test_several_views_share_one_result() -> None:
    def f(x):
        y = x + 1
        return y.t(), y.view(-1)

    _, found = planned(f, torch.ones(2, 3))
    assert sources(found) == [Source.OUTPUT_VIEW, Source.OUTPUT_VIEW]
    assert len(found.outputs) == 1


def test_what_must_be_no_view_owns_the_memory_others_are_views_of_it() -> None:
    def f(x):
        y = x + 1
        return y, y.t(), y.view(-1)

    rules = [OutputRule(), OutputRule(no_view=True), OutputRule()]
    graph, found = planned(f, torch.ones(2, 3), rules=rules)
    assert sources(found) == [Source.OUTPUT_VIEW, Source.OUTPUT, Source.OUTPUT_VIEW]
    assert found.outputs[0].size == (3, 2)
    assert found.returned[0].layout.size == (2, 3)
    assert operators(graph) == ["aten.add.Tensor"]


def test_part_that_must_be_no_view_is_an_alias_or_a_copy() -> None:
    def f(x):
        y = x + 1
        return y[1:], y * 2

    rules = [OutputRule(no_view=True), OutputRule()]
    _, found = planned(f, torch.ones(2, 3), rules=rules)
    assert sources(found) == [Source.OUTPUT_ALIAS, Source.OUTPUT]

    def g(x):
        y = x + 1
        return y[1:], y

    graph, found = planned(g, torch.ones(2, 3), rules=rules)
    assert sources(found) == [Source.OUTPUT, Source.OUTPUT]
    assert "aten.clone.default" in operators(graph)


def test_output_that_must_be_alone_is_copied_if_others_show_its_memory() -> None:
    def f(x):
        y = x + 1
        return y.t(), y

    graph, found = planned(f, torch.ones(2, 3), rules=[OutputRule(alone=True), OutputRule()])
    assert sources(found) == [Source.OUTPUT, Source.OUTPUT]
    assert [item.index for item in found.returned] == [0, 1]
    assert operators(graph).count("aten.clone.default") == 1
    graph, found = planned(lambda x: (x + 1).t(), torch.ones(2, 3), rules=[OutputRule(alone=True)])
    assert operators(graph) == ["aten.add.Tensor"]


def test_output_that_must_not_share_an_input_s_memory_is_copied() -> None:
    graph, found = planned(
        lambda x: (x, x.t()), torch.ones(2, 3), rules=[OutputRule(own_memory=True)] * 2
    )
    assert sources(found) == [Source.OUTPUT, Source.OUTPUT]
    assert operators(graph).count("aten.clone.default") == 2
    assert found.outputs[1].stride == (1, 3)


def test_constant_output_is_copied() -> None:
    traced = aten_graph(lambda x: x + 1, torch.ones(2))
    traced.register_buffer("constant", torch.tensor([1.0, 2.0]))
    [result] = traced.graph.output_node().args[0]
    with traced.graph.inserting_before(result):
        constant = traced.graph.get_attr("constant")
    constant.meta["val"] = result.meta["val"]
    traced.graph.output_node().args = ((constant, result),)
    graph, found = plan(traced, [OutputRule()] * 2)
    assert sources(found) == [Source.OUTPUT] * 2
    assert "aten.clone.default" in operators(graph)


def test_lost_strides_are_restored_by_a_copy() -> None:
    graph, found = planned(lambda x: (x + 1,), torch.ones(2, 3), rules=[OutputRule(stride=(1, 2))])
    assert found.outputs[0].stride == (1, 2)
    [output] = graph.graph.output_node().args[0]
    assert output.target is torch.ops.aten.clone.default
    assert output.meta["val"].stride() == (1, 2)


def test_strides_of_single_elements_need_no_copy() -> None:
    graph, found = planned(lambda x: (x + 1,), torch.ones(1, 3), rules=[OutputRule(stride=(77, 1))])
    assert operators(graph) == ["aten.add.Tensor"]
    assert found.outputs[0].stride == (77, 1)


def test_conjugate_inputs_are_resolved_per_call() -> None:
    x = torch.ones(3, dtype=torch.complex64).conj()
    _, found = planned(lambda y, x: (y + 1, x + 1), torch.ones(3), x)
    assert found.resolve == (1,)


def test_assertions_become_checks() -> None:
    def f(x):
        torch.ops.aten._assert_async.msg((x > 0).all(), "must be positive")
        return (x + 1,)

    graph, found = planned(f, torch.ones(3))
    [check] = found.checks
    assert check.message == "must be positive"
    assert len(found.outputs) == 1
    assert graph.graph.output_node().args[0][-1].meta["val"].dtype == torch.bool
    assert not any("assert" in name for name in operators(graph))


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda: torch.ones(3, device="meta"), "on device meta"),
        (lambda: torch.eye(3).to_sparse(), "torch.sparse_coo"),
    ],
)
def test_tensor_that_is_not_dense_in_main_memory_is_refused(make, place) -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = make()
    x.meta["stack_trace"] = '  File "model.py", line 12, in forward\n    return x'
    graph.output((x,))
    with pytest.raises(LoweringError, match=f"input x .*{place}") as raised:
        plan(torch.fx.GraphModule({}, graph), [OutputRule()])
    assert "model.py:12" in str(raised.value)


def test_view_of_an_asserted_value_keeps_its_own_shape() -> None:
    def f(x):
        fine = (x > 0).all()
        torch.ops.aten._assert_async.msg(fine, "must be positive")
        return (fine.view(1, 1),)

    _, found = planned(f, torch.ones(3))
    assert [buffer.size for buffer in found.outputs] == [(1, 1)]
    assert len(found.checks) == 1


def test_users_see_which_tensor_is_on_another_device() -> None:
    compiled = torch.compile(lambda x: x + 1, backend="neuron")
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="on device meta"):
        compiled(torch.ones(2, device="meta"))
