"""The table of StableHLO emitters, keyed by exact operator overload.

In: emitter functions decorated with `@emits(aten.x.Tensor, ...)`. Out: `rule_for(overload)`.
Invariant: an overload has at most one emitter; a second registration is an error at import time.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import torch
import torch.fx
from torch._ops import OpOverload

from neuron_compile.lowering import pairs

Supports = Callable[[torch.fx.Node], str | None]
_Emit = TypeVar("_Emit", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Rule:
    """How one overload is translated.

    `emit(b, *args, **kwargs)` receives a Builder, then the aten arguments: tensors as
    builtin-tensor values, everything else as Python values, and returns a value or a sequence of
    them (None for a result nobody may use). `supports(node)` returns None, or the reason this node
    is refused.
    """

    overload: OpOverload
    emit: Callable[..., Any]
    supports: Supports | None
    family: str


_RULES: dict[OpOverload, Rule] = {}
_COMPLEX: dict[OpOverload, Rule] = {}
_NAMED: dict[str, Callable[..., Any]] = {}


def emits(*overloads: OpOverload, supports: Supports | None = None) -> Callable[[_Emit], _Emit]:
    """Register the decorated function as the emitter of exactly these overloads.

    Decorators may be stacked. Raises TypeError for an overload packet (`aten.add` instead of
    `aten.add.Tensor`), ValueError for an overload that already has an emitter.
    """
    if not overloads:
        raise TypeError("emits() needs at least one operator overload")
    for given in overloads:
        if not isinstance(given, OpOverload):
            raise TypeError(
                f"emits() takes exact overloads such as aten.add.Tensor, got {given!r};"
                f" name the overload"
            )

    def register(emit: _Emit) -> _Emit:
        for overload in overloads:
            if overload in _RULES:
                other = _RULES[overload].emit
                raise ValueError(
                    f"{overload} has an emitter already: {other.__module__}.{other.__qualname__}"
                )
            family = emit.__module__.rpartition(".")[2]
            _RULES[overload] = Rule(overload, emit, supports, family)
        return emit

    return register


def emits_named(*names: str) -> Callable[[_Emit], _Emit]:
    """As `emits`, for operators of packages that need not be installed: "library::operator"."""

    def register(emit: _Emit) -> _Emit:
        for name in names:
            if name in _NAMED:
                raise ValueError(f"{name} has an emitter already")
            _NAMED[name] = emit
        return emit

    return register


def emits_complex(
    *overloads: OpOverload, supports: Supports | None = None
) -> Callable[[_Emit], _Emit]:
    """Register how these overloads are translated where a tensor is complex.

    As `emits`, but complex tensors arrive, and are returned, as `Pair`s of real values.
    """

    def register(emit: _Emit) -> _Emit:
        for overload in overloads:
            _add_complex(overload, emit, supports)
        return emit

    return register


def partwise(*overloads: OpOverload) -> None:
    """Declare that these overloads do the same to the real and to the imaginary part.

    Their emitter is then called once with each. Other tensors must not be added to the complex
    ones: they are indices, masks and the like, and given to both calls.
    """
    for overload in overloads:
        each = functools.partial(_on_each_part, overload)
        _add_complex(overload, each, functools.partial(_supports_as_real, overload))


def _add_complex(overload: OpOverload, emit: Callable[..., Any], supports: Supports | None) -> None:
    if overload in _COMPLEX:
        raise ValueError(f"{overload} has an emitter for complex tensors already")
    _COMPLEX[overload] = Rule(overload, emit, supports, "complex")


def _supports_as_real(overload: OpOverload, node: torch.fx.Node) -> str | None:
    supports = _RULES[overload].supports
    return supports(node) if supports is not None else None


def _on_each_part(overload: OpOverload, b: Any, *args: Any, **kwargs: Any) -> Any:
    emit = _RULES[overload].emit
    made = [
        emit(
            b,
            *(pairs.part(arg, which) for arg in args),
            **{name: pairs.part(arg, which) for name, arg in kwargs.items()},
        )
        for which in ("real", "imag")
    ]
    if isinstance(made[0], Sequence):
        return [pairs.Pair(re, im) for re, im in zip(*made, strict=True)]
    return pairs.Pair(*made)


def is_complex(node: torch.fx.Node) -> bool:
    """Whether an operand or a result of the node is a complex tensor."""
    return any(_has_complex(n.meta.get("val")) for n in (node, *node.all_input_nodes))


def _has_complex(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.dtype.is_complex
    return isinstance(value, (list, tuple)) and any(_has_complex(item) for item in value)


def rule_for_node(node: torch.fx.Node) -> Rule | None:
    """The rule of a node: of its overload, for complex tensors if it has any."""
    if is_complex(node):
        _load_families()
        return _COMPLEX.get(node.target)
    return rule_for(node.target)


def complex_rules() -> Mapping[OpOverload, Rule]:
    """Every rule for complex tensors, read-only."""
    _load_families()
    return MappingProxyType(_COMPLEX)


def rule_for(overload: Any) -> Rule | None:
    """The rule of an exact overload, or None if we have no emitter for it."""
    _load_families()
    known = _RULES.get(overload)
    if known is None and isinstance(overload, OpOverload) and overload.name() in _NAMED:
        emit = _NAMED[overload.name()]
        return Rule(overload, emit, None, emit.__module__.rpartition(".")[2])
    return known


def all_rules() -> Mapping[OpOverload, Rule]:
    """Every registered rule, read-only, in registration order."""
    _load_families()
    return MappingProxyType(_RULES)


@functools.cache
def _load_families() -> None:
    from neuron_compile.lowering import ops

    for module in sorted(info.name for info in pkgutil.iter_modules(ops.__path__)):
        importlib.import_module(f"{ops.__name__}.{module}")
