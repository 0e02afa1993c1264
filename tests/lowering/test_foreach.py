"""Operators on lists of tensors: one plain operator for each, as eager has it."""

from __future__ import annotations

import pytest
import torch

from neuron_compile.lowering.foreach import foreach_decompositions
from tests.lowering.single_op import check

aten = torch.ops.aten
LISTS, NUMBERS, FACTORS = "List[Tensor]", "List[number]", "number"


def argument(kind: str, number: int, count: int) -> object:
    """Tensors between 0.2 and 1: every operator is smooth there, and defined."""
    if kind == LISTS:
        return [torch.rand(n + 2, n + 2) * 0.8 + 0.2 for n in range(count)]
    if kind == NUMBERS:
        return [0.25 + number + n for n in range(count)]
    return 0.75 if kind == FACTORS else torch.tensor(0.5)


@pytest.mark.parametrize("overload", foreach_decompositions(), ids=str)
def test_every_overload(overload) -> None:
    given = [
        a
        for a in overload._schema.arguments
        if not a.kwarg_only and str(a.type) not in ("Optional[int]", "bool")
    ]
    args = [argument(str(a.type), i, 3) for i, a in enumerate(given)]
    if "addc" in str(overload) and overload._overloadname == "Tensor":
        args[-1] = torch.tensor([0.5, 1.5, -2.0])
    check(overload, *args)


def test_a_factor_for_all() -> None:
    x, y = ([torch.randn(n), torch.randn(2, n)] for n in (3, 3))
    check(lambda x, y: torch._foreach_add(x, y, alpha=0.5), x, y)
    check(lambda x, y: torch._foreach_sub(x, y, alpha=2), x, y)
    check(lambda x, y: torch._foreach_addcmul(x, x, y, value=-0.5), x, y)


def test_numbers_of_another_kind() -> None:
    x = [torch.arange(5), torch.tensor([[True, False]]), torch.rand(3).bfloat16()]
    check(lambda *x: torch._foreach_mul(x, [2.5, 3, 2]), *x)
    check(lambda *x: torch._foreach_norm(x[2:], 1, torch.float32), *x)
