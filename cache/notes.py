"""What an entry tells people about itself, beside its key.

In: notes by name, recorded among an entry's texts. Out: the notes again, or none. Invariants: notes
are no part of any key, so that equal graphs share an entry, which keeps the notes of the program
that compiled it first; an entry without notes, or with notes that make no sense, is as good as any.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_PREFIX = "note."
_FUNCTION = "note.function"
_INPUTS = "note.inputs"
_GRAPH = "note.graph"

WEIGHT, INPUT, OTHER = "weight", "input", "other"
_ROLES = (WEIGHT, INPUT, OTHER)

# A graph of ten thousand nodes has about a megabyte; a hostile entry must not fill the memory.
_MOST_TEXT = 16 << 20


@dataclass(frozen=True, slots=True)
class InputNote:
    """`role`: `weight` is a parameter or buffer of the user's module, `input` an argument of the
    user's, `other` what the compiler made (a saved value, a gradient). `name`: the user's, or
    empty.
    """

    role: str
    name: str


@dataclass(frozen=True, slots=True)
class Notes:
    """`function`: of the user's, such as `Head.forward`; `inputs`: one note for each input of the
    graph, in order; `graph`: its canonical text. Each may be empty.
    """

    function: str = ""
    inputs: tuple[InputNote, ...] = ()
    graph: str = ""

    def provenance(self) -> dict[str, str]:
        """As texts to record in an entry; `recorded_notes` makes notes of them again."""
        return {
            _FUNCTION: self.function,
            _INPUTS: "\n".join(f"{note.role} {note.name}" for note in self.inputs),
            _GRAPH: _packed(self.graph),
        }


def is_note(name: str) -> bool:
    """True for the name of a recorded text that is a note."""
    return name.startswith(_PREFIX)


def recorded_notes(provenance: Mapping[str, str]) -> Notes:
    """The notes that an entry records; empty where it has none or they cannot be read."""
    function = provenance.get(_FUNCTION, "")
    return Notes(
        function=function if function.isprintable() else "",
        inputs=_inputs(provenance.get(_INPUTS, "").splitlines()),
        graph=_unpacked(provenance.get(_GRAPH, "")),
    )


def _inputs(lines: Sequence[str]) -> tuple[InputNote, ...]:
    notes = [InputNote(role, name) for role, _, name in (line.partition(" ") for line in lines)]
    sound = all(note.role in _ROLES and note.name.isprintable() for note in notes)
    return tuple(notes) if sound else ()


def _packed(text: str) -> str:
    """Compressed: a graph's text is of the size of its code, and a tenth of that packed."""
    return base64.b85encode(zlib.compress(text.encode())).decode("ascii")


def _unpacked(text: str) -> str:
    try:
        return zlib.decompressobj().decompress(base64.b85decode(text), _MOST_TEXT).decode("utf-8")
    except (ValueError, binascii.Error, zlib.error):
        return ""
