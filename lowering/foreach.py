"""Decompositions of the operators on lists of tensors, as optimizers with `foreach=True` use them.

In: nothing. Out: `aten._foreach_*` overload -> one call of the plain operator for each tensor.
Invariant: the table is made from the operators' schemas; what is written here is only how names
and arguments differ from the plain operator's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

_PREFIX = "_foreach_"


def _with_factor(
    combine: Callable[..., torch.Tensor], x: torch.Tensor, *parts: Any
) -> torch.Tensor:
    """x + value * (y, z combined); the list's last argument is the value: a number, or one element
    of a tensor of them.
    """
    y, z, value = parts if len(parts) == 3 else (*parts, 1)
    if not isinstance(value, torch.Tensor):
        return combine(x, y, z, value=value)
    return x + combine(torch.zeros_like(x), y, z) * value


def _norm(x: torch.Tensor, order: float = 2, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.linalg.vector_norm(x, order, dtype=dtype)


def _copy(x: torch.Tensor, source: torch.Tensor, _non_blocking: bool = False) -> torch.Tensor:
    return source.expand_as(x).to(x.dtype)


# Where the plain operator is not the one of that name.
_PLAIN: dict[str, Callable[..., torch.Tensor]] = {
    "addcdiv": functools.partial(_with_factor, torch.addcdiv),
    "addcmul": functools.partial(_with_factor, torch.addcmul),
    "copy": _copy,
    "maximum": torch.clamp_min,  # these take numbers too
    "minimum": torch.clamp_max,
    "norm": _norm,
    "zero": torch.zeros_like,
}


def _each(plain: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> list[torch.Tensor]:
    """`plain` of the first elements of all lists, of the second ones, ...; the rest goes to all."""
    count = next(len(arg) for arg in args if isinstance(arg, (list, tuple)))
    return [
        plain(*(arg[i] if isinstance(arg, (list, tuple)) else arg for arg in args), **kwargs)
        for i in range(count)
    ]


def _each_with_factors(
    plain: Callable[..., torch.Tensor], *args: Any, **kwargs: Any
) -> list[torch.Tensor]:
    """As `_each`, where the last argument is a tensor with one number for each."""
    return _each(plain, *args[:-1], args[-1].unbind(), **kwargs)


def foreach_decompositions() -> dict[OpOverload, Callable[..., list[torch.Tensor]]]:
    """Every overload that returns new tensors and whose plain operator is known."""
    table: dict[OpOverload, Callable[..., list[torch.Tensor]]] = {}
    # Some have only a name with the underscore of what changes its argument.
    names = {name.rstrip("_") for name in dir(torch) if name.startswith(_PREFIX)}
    for base in sorted(name.removeprefix(_PREFIX) for name in names):
        plain = _PLAIN.get(base, getattr(torch, base, None))
        packet = getattr(torch.ops.aten, _PREFIX + base, None)
        if plain is None or packet is None:
            continue
        for overload in (getattr(packet, o) for o in packet.overloads()):
            if any(argument.is_out for argument in overload._schema.arguments):
                continue
            factors = base.startswith("addc") and overload._overloadname == "Tensor"
            table[overload] = functools.partial(_each_with_factors if factors else _each, plain)
    return table
