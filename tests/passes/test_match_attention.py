"""Attention in the forms frontends write it, and what only looks like it."""

from __future__ import annotations

import pytest

from neuron_compile.passes.match_attention import match_attention
from tests import oracle
from tests.passes.checks import compile_groups, functions, kinds
from tests.passes.programs import attention


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"scale": False},
        {"causal": True},
        {"mask": "add"},
        {"mask": "select"},
        {"safe": True},
        {"softcap": True},
        {"dtype": "bf16"},
        {"flat": True},
        {"groups": 2},
        {"lse": True},
        {"turned": True},
        {"queries": 1},
        {"causal": True, "mask": "add", "safe": True, "dtype": "bf16", "groups": 2},
    ],
    ids=lambda form: "-".join(f"{k}={v}" for k, v in form.items()) or "plain",
)
def test_is_one_group(form: dict[str, object]) -> None:
    module = compile_groups(attention(**form), rtol=1e-5)
    assert kinds(module) == ["attention"]


@pytest.mark.parametrize(
    "form",
    [
        {"other": "weights"},  # the weights are returned as well
        {"other": "scores"},
        {"other": "columns"},  # softmax over the queries
        {"other": "relu"},  # no softmax
        {"other": "values from scores"},
    ],
    ids=lambda form: str(form["other"]),
)
def test_is_none(form: dict[str, object]) -> None:
    assert "attention" not in kinds(compile_groups(attention(**form), rtol=1e-5))


def test_the_result_is_stored_with_the_heads_side_by_side() -> None:
    module = compile_groups(attention(turned=True), rtol=1e-5)
    (function,) = functions(module).values()
    assert "tensor<2x5x3x4xf32>" in str(function.attributes["function_type"]).split("->")[1]


def test_plans_do_not_overlap() -> None:
    from neuron_compile.passes.unit import Unit

    module = oracle.parse(attention())
    with module.context:
        unit = Unit(module)
        match_attention(unit)
        assert [plan.kind for plan in unit.groups] == ["attention"]
        assert {node.name for node in unit.groups[0].nodes} >= {"dot_general", "exponential"}
