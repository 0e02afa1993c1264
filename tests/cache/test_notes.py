"""Notes survive an entry, stay out of the key, and never make an entry unreadable."""

from __future__ import annotations

import base64
import zlib

import pytest

from neuron_compile.cache import notes
from neuron_compile.cache.key import make_key, recorded_key
from neuron_compile.cache.notes import INPUT, WEIGHT, InputNote, Notes, is_note, recorded_notes

NOTES = Notes(
    "Head.forward", (InputNote(WEIGHT, "layers.0.weight"), InputNote(INPUT, "x[0]")), "%0 = é()"
)


def test_round_trip() -> None:
    assert recorded_notes(NOTES.provenance()) == NOTES
    assert recorded_notes(Notes().provenance()) == Notes()


def test_an_entry_without_notes_has_none() -> None:
    assert recorded_notes({"key.graph": "0" * 64}) == Notes()


def test_notes_are_no_part_of_the_key() -> None:
    key = make_key([("graph", b"x")], b"input 0: float32[2]")
    assert recorded_key({**key.provenance(), **NOTES.provenance()}) == key
    assert all(is_note(name) for name in NOTES.provenance())
    assert not any(is_note(name) for name in key.provenance())


@pytest.mark.parametrize("graph", ["\u20ac", "no base85 \\", "", base64.b85encode(b"x").decode()])
def test_a_graph_that_cannot_be_unpacked_is_none(graph: str) -> None:
    assert recorded_notes({"note.graph": graph}).graph == ""


def test_a_graph_that_unpacks_to_more_than_any_graph_has_is_cut(monkeypatch) -> None:
    monkeypatch.setattr(notes, "_MOST_TEXT", 100)
    packed = base64.b85encode(zlib.compress(b"x" * 10**6)).decode()
    assert recorded_notes({"note.graph": packed}).graph == "x" * 100


@pytest.mark.parametrize("inputs", ["weight\x1b[31m a", "nonsense a", "input a\x07"])
def test_inputs_that_make_no_sense_are_none(inputs: str) -> None:
    assert recorded_notes({"note.inputs": inputs}).inputs == ()


def test_a_function_with_control_characters_is_none() -> None:
    assert recorded_notes({"note.function": "f\x1b[2J"}).function == ""
