"""Short forms for people, and entries from before notes were taken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from neuron_compile.cache.layout import walk
from neuron_compile.cache.notes import is_note
from neuron_compile.compiler import forget_executables
from neuron_compile.listing import UNREADABLE, Summary, age, short_type, summary
from neuron_compile.neff.reader import read
from neuron_compile.neff.writer import write


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("float32[8, 128]", "f32[8,128]"),
        ("bfloat16[]", "bf16[]"),
        ("int64[3]", "i64[3]"),
        ("uint8[3]", "u8[3]"),
        ("complex64[2, 2]{1, 2}", "c64[2,2]{1,2}"),
        ("bool[5]", "bool[5]"),
    ],
)
def test_short_type(text: str, short: str) -> None:
    assert short_type(text) == short


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "now"), (59, "now"), (60, "1 min"), (7199, "119 min"), (7200, "2 h"), (172800, "2 d")],
)
def test_age(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_shapes_of_many_inputs_stay_short() -> None:
    shapes = Summary("f", "forward", ("f32[1]",) * 5, weights=1, others=2).shapes
    assert shapes == "f32[1] f32[1] f32[1] +2 more +1 weight +2 others"
    assert Summary("f", "inference", ()).shapes == "no inputs"


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x)


@pytest.fixture
def entry(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(tmp_path))
    forget_executables()
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(Net(), backend="neuron", options={"model_name": "net"})(torch.ones(2, 4))
    (found,) = walk(tmp_path)
    return found


def test_weights_are_counted_apart_from_inputs(entry) -> None:
    found = summary(entry)
    assert found.title == "net: Net"
    assert (found.kind, found.inputs, found.weights) == ("inference", ("f32[2,4]",), 2)


def test_an_entry_without_notes_is_described_by_its_key(entry) -> None:
    neff = read(entry.path)
    before = {name: text for name, text in neff.provenance.items() if not is_note(name)}
    entry.path.write_bytes(write(replace(neff, name="graph", provenance=before)))
    found = summary(entry)
    assert ".py:" in found.title
    assert found.kind == "inference"
    assert sorted(found.inputs) == ["f32[2,4]", "f32[3,4]", "f32[3]"]
    assert found.weights == 0


def test_a_damaged_entry_is_listed_as_such(entry) -> None:
    entry.path.write_bytes(b"damaged")
    assert summary(entry) == UNREADABLE
