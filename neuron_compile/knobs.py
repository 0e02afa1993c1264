"""What options and environment variables have in common: a declaration, a check, a table row.

In: fields of a frozen dataclass declared with `knob`. Out: checked values and rows for the command
line and the documentation. Invariant: name, type, default, help and `in_key` of a knob stand in one
place.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from neuron_compile.errors import OptionError


@dataclass(frozen=True, slots=True)
class Knob:
    """One option or variable: `read` turns what the user wrote into the field's value, or raises
    ValueError.
    """

    name: str
    default: Any
    meaning: str
    in_key: bool
    read: Callable[[Any], Any]


def knob(
    meaning: str, *, read: Callable[[Any], Any], name: str = "", in_key: bool = False
) -> dict[str, Any]:
    """The metadata that makes a dataclass field a knob: `field(default=..., metadata=knob(...))`.

    `name` is what users write, if not the field's own name. `in_key` says that the knob changes the
    code made for a graph, so it belongs to the cache key.
    """
    return {"meaning": meaning, "read": read, "name": name, "in_key": in_key}


def knobs(owner: type) -> dict[str, Knob]:
    """Field name -> knob, in the order of declaration."""
    found = {}
    for field in dataclasses.fields(owner):
        meta = field.metadata
        found[field.name] = Knob(
            meta["name"] or field.name, field.default, meta["meaning"], meta["in_key"], meta["read"]
        )
    return found


def checked(knob: Knob, value: Any, kind: str) -> Any:
    """The value as the knob reads it; raises OptionError that says what `kind` of knob it was."""
    try:
        return knob.read(value)
    except ValueError as error:
        raise OptionError(
            f"{kind} {knob.name} cannot be {value!r}",
            why=str(error),
            remedy=f"leave it out for the default ({knob.default!r}); it means: {knob.meaning}",
        ) from None


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?` if some known name is alike, else a list of them all."""
    names = list(known)
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {found[0]!r}?" if found else f"known are {', '.join(names)}"


_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True} | {
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def a_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError("it must be True or False")


def a_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ValueError("it must be a string")


def a_switch(text: str) -> bool:
    """A boolean as people write it in an environment variable."""
    try:
        return _BOOLEANS[text.strip().lower()]
    except KeyError:
        raise ValueError(f"it must be one of {', '.join(_BOOLEANS)}") from None
