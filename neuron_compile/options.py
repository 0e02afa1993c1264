"""Options of `torch.compile(model, backend="neuron", options={...})`.

In: the caller's mapping and mode. Out: a frozen `Options`. Invariants: the mapping is never written
to; an unknown name or a wrong type is an OptionError; equal options share graphs, others never do.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from neuron_compile.errors import OptionError
from neuron_compile.knobs import a_bool, a_text, checked, knob, knobs, nearest


def _buckets(value: Any) -> tuple[int, ...]:
    sizes = tuple(value) if isinstance(value, list | tuple) else ()
    if not sizes or not all(type(size) is int and size > 0 for size in sizes):
        raise ValueError("it must be a list of positive sizes")
    return sizes


@dataclass(frozen=True, slots=True)
class Options:
    """The options in force for one graph; see the fields' help texts."""

    model_name: str = field(
        default="",
        metadata=knob("name used for the NEFF and for files in the debug directory", read=a_text),
    )
    target: str = field(
        default="",
        metadata=knob(
            "instruction set to compile for, such as x86-64-v3; "
            "empty: NEURON_COMPILE_TARGET or this machine's",
            read=a_text,
            in_key=True,
        ),
    )
    fallback_execution: bool = field(
        default=False,
        metadata=knob(
            "run what cannot be lowered in eager PyTorch (not available yet)", read=a_bool
        ),
    )
    fallback_random: bool = field(
        default=False,
        metadata=knob(
            "draw eager's exact random numbers (not available yet)", read=a_bool, in_key=True
        ),
    )
    shape_buckets: tuple[int, ...] = field(
        default=(),
        metadata=knob(
            "pad varying sizes up to one of these (not available yet)", read=_buckets, in_key=True
        ),
    )


KNOBS = knobs(Options)

# What is declared, so that code moves both ways, but belongs to later work: option -> what to do.
_LATER = {
    "fallback_execution": "leave the option out (and TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION at "
    "1): an unsupported operator then raises an error that lists all of them; keep those parts out "
    "of the compiled function with torch.compiler.disable",
    "fallback_random": "leave the option out; random operators are then native, reproducible under "
    "torch.manual_seed, but not equal to eager's numbers",
    "shape_buckets": "leave the option out: every shape gets its own NEFF; to bound their number, "
    "pad the inputs before the call",
}


def resolve(options: Mapping[str, Any] | None, mode: str | None) -> Options:
    """Check what the caller passed to torch.compile.

    Raises OptionError for an unknown name, a value of the wrong type, or an option that this
    version does not have yet. A `mode` other than "default" only warns, as with the public backend.
    """
    if mode not in (None, "default"):
        warnings.warn(
            f'backend "neuron" has only mode="default"; mode={mode!r} is ignored', stacklevel=2
        )
    if options is None:
        return Options()
    if not isinstance(options, Mapping):
        raise OptionError(
            f"options must be a mapping of names to values, not {type(options).__name__}",
            remedy='torch.compile(model, backend="neuron", options={"model_name": "encoder"})',
        )
    values = {}
    for name, value in options.items():
        if name not in KNOBS:
            raise OptionError(
                f"unknown option {name!r} of backend 'neuron'", remedy=nearest(str(name), KNOBS)
            )
        values[name] = checked(KNOBS[name], value, "option")
    resolved = Options(**values)
    for name, remedy in _LATER.items():
        if getattr(resolved, name) != KNOBS[name].default:
            raise not_yet(f"option {name!r}", remedy)
    return resolved


def not_yet(what: str, remedy: str) -> OptionError:
    """The error for a switch that users of the public backend know and this version lacks."""
    return OptionError(
        f"{what} is not available yet", why="this version does not implement it", remedy=remedy
    )


def fallback_remedy() -> str:
    """What to do instead of falling back; the environment has a switch for the same thing."""
    return _LATER["fallback_execution"]


def key_items(options: Options) -> tuple[tuple[str, str], ...]:
    """(name, value) of the options that change the code made for a graph, in order of declaration.

    Without the target, which the key holds as it was resolved: named or native, it is the same.
    """
    return tuple(
        (name, repr(getattr(options, name)))
        for name, knob in KNOBS.items()
        if knob.in_key and name != "target"
    )
