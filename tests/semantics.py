"""Compiled against eager: values, dtype, shape, strides, aliasing, and the state of the inputs
afterwards.

In: a function and a maker of its arguments. Out: nothing, or an assertion that says what differs.
Invariant: the expected values come from eager PyTorch in the same run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

Maker = Callable[[], Sequence[Any]]


def assert_same_effect(
    function: Callable[..., Any],
    make: Maker,
    *,
    calls: int = 1,
    rtol: float | None = None,
    atol: float | None = None,
    **compile_options: Any,
) -> Any:
    """`function(*make())` gives and leaves behind the same, eager and compiled; returns the
    compiled result."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="neuron", **compile_options)
    result = None
    for _ in range(calls):
        theirs, ours = _seeded(make), _seeded(make)
        expected, result = function(*theirs), compiled(*ours)
        assert_same(result, expected, "result", rtol, atol)
        assert_same(ours, theirs, "argument afterwards", rtol, atol)
    return result


def assert_same(
    ours: Any, theirs: Any, what: str, rtol: float | None = None, atol: float | None = None
) -> None:
    """Equal structure and values; tensors also in dtype, strides and requires_grad."""
    our_leaves, our_spec = pytree.tree_flatten(ours)
    their_leaves, their_spec = pytree.tree_flatten(theirs)
    assert our_spec == their_spec, f"{what}: {our_spec} instead of {their_spec}"
    for i, (a, b) in enumerate(zip(our_leaves, their_leaves, strict=True)):
        name = f"{what} {i}"
        if not isinstance(b, torch.Tensor):
            assert type(a) is type(b), f"{name}: {a!r} instead of {b!r}"
            assert a == b, f"{name}: {a!r} instead of {b!r}"
            continue
        assert a.dtype == b.dtype, f"{name}: {a.dtype} instead of {b.dtype}"
        assert a.shape == b.shape, f"{name}: {a.shape} instead of {b.shape}"
        assert a.stride() == b.stride(), f"{name}: strides {a.stride()} instead of {b.stride()}"
        assert a.requires_grad == b.requires_grad, f"{name}: requires_grad is {a.requires_grad}"
        if not b.dtype.is_floating_point and not b.dtype.is_complex:
            rtol, atol = 0.0, 0.0
        torch.testing.assert_close(
            a.detach(),
            b.detach(),
            rtol=rtol,
            atol=atol,
            equal_nan=True,
            msg=functools.partial("{}: {}".format, name),
        )


def _seeded(make: Maker) -> Sequence[Any]:
    torch.manual_seed(0)
    return make()


def both_raise(
    function: Callable[..., Any], make: Maker, match: str, **compile_options: Any
) -> BaseException:
    """Eager and compiled raise errors that contain `match`; returns the compiled one's."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="neuron", **compile_options)
    with pytest.raises((RuntimeError, IndexError, ValueError), match=match):
        function(*_seeded(make))
    with pytest.raises((RuntimeError, IndexError, ValueError), match=match) as raised:
        compiled(*_seeded(make))
    return raised.value
