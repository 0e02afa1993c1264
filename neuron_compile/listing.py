"""What a person recognises an entry of the cache by: whose graph it is, which one, of what shapes.

In: an entry's file. Out: a `Summary`, and its parts in short form. Invariant: reads what entries
say and nothing else; an entry from before notes were taken is described by its key alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from neuron_compile.cache.key import recorded_key
from neuron_compile.cache.layout import Found
from neuron_compile.cache.notes import INPUT, WEIGHT, recorded_notes
from neuron_compile.errors import NeuronCompileError
from neuron_compile.neff import reader
from neuron_compile.neff.schema import Neff

_UNNAMED = "graph"  # what a graph is called without the option `model_name`
_MOST_INPUTS = 3
_TYPES = (("float", "f"), ("bfloat", "bf"), ("uint", "u"), ("int", "i"), ("complex", "c"))
_TYPE = re.compile(r"(bfloat|float|uint|int|complex)(\d+)")
_INPUT_LINE = re.compile(r"input \d+: (.*)")
# (from so many seconds on, unit, seconds in it): 30 h says more than 1 d.
_AGES = ((2 * 86400, "d", 86400), (2 * 3600, "h", 3600), (60, "min", 60))


@dataclass(frozen=True, slots=True)
class Summary:
    """`title`: the option `model_name`, the user's module or function, or a line of the code.
    `kind`: forward, backward or inference. `inputs`: `f32[8,128]`, the user's if they are known;
    `weights`: how many parameters and buffers; `others`: how many inputs of other origin.
    """

    title: str
    kind: str
    inputs: tuple[str, ...]
    weights: int = 0
    others: int = 0

    @property
    def shapes(self) -> str:
        """One short line: `f32[8,128] +6 weights`."""
        shown = [*self.inputs[:_MOST_INPUTS]]
        more = len(self.inputs) - len(shown)
        shown += [f"+{more} more"] if more else []
        shown += [f"+{self.weights} weight{'s' * (self.weights > 1)}"] if self.weights else []
        shown += [f"+{self.others} other{'s' * (self.others > 1)}"] if self.others else []
        return " ".join(shown) or "no inputs"


UNREADABLE = Summary("(unreadable: see `cache verify`)", "?", ())


def summary(found: Found) -> Summary:
    """The summary of an entry; `UNREADABLE` if it is damaged, of another version, or gone."""
    try:
        neff = reader.read(found.path)
    except (NeuronCompileError, OSError):
        return UNREADABLE
    key = recorded_key(neff.provenance)
    parts = dict(key.parts) if key else {}
    shapes = _shapes(key.signature) if key else []
    notes = recorded_notes(neff.provenance).inputs
    roles = [note.role for note in notes]
    if len(roles) != len(shapes) or INPUT not in roles:  # of a backward graph, say
        return Summary(_title(neff), _kind(parts), tuple(shapes))
    return Summary(
        _title(neff),
        _kind(parts),
        tuple(s for s, role in zip(shapes, roles, strict=True) if role == INPUT),
        weights=roles.count(WEIGHT),
        others=len(roles) - roles.count(WEIGHT) - roles.count(INPUT),
    )


def short_type(text: str) -> str:
    """`f32[8,128]` of `float32[8, 128]`; strides and marks behind it stay."""
    short = _TYPE.sub(lambda m: dict(_TYPES)[m[1]] + m[2], text, count=1)
    return short.replace(", ", ",")


def age(seconds: float) -> str:
    """`now`, or whole minutes, hours or days."""
    for least, unit, length in _AGES:
        if seconds >= least:
            return f"{seconds // length:.0f} {unit}"
    return "now"


def _title(neff: Neff) -> str:
    function = recorded_notes(neff.provenance).function.removesuffix(".forward")
    named = neff.name if neff.name != _UNNAMED else ""
    if named or function:
        return ": ".join(part for part in (named, function) if part)
    lines = [line for kernel in neff.plan.kernels for line in kernel.locations]
    return Path(lines[0]).name if lines else "?"


def _kind(parts: dict[str, str]) -> str:
    return parts.get("aot.kind", "").removeprefix("=").strip("'") or "?"


def _shapes(signature: str) -> list[str]:
    lines = (_INPUT_LINE.fullmatch(line) for line in signature.splitlines())
    return [short_type(line[1]) for line in lines if line]
