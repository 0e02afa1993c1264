"""`neff/describe.py`: the columns of the public packager, and only the header of foreign files."""

import json
from dataclasses import replace

import pytest

from neuron_compile.cache.notes import INPUT, WEIGHT, InputNote, Notes
from neuron_compile.errors import NeffFormatError
from neuron_compile.neff.describe import COLUMNS, as_text, describe, unpack
from neuron_compile.neff.reader import members
from neuron_compile.neff.writer import write
from tests.neff.samples import neff, resealed
from tests.neff.test_header import foreign

DATA = write(neff())


def test_our_file_shows_everything():
    described = describe(DATA)
    json.dumps(described)
    assert described["header"]["Network Name"] == "sample"
    assert described["header"]["Hash"] == DATA[172:188].hex()
    assert described["target"] == "x86-64-v4+avx512_bf16"
    assert [(n["Variable"], n["Type"], n["Size"]) for n in described["nodes"]] == [
        ("x", "IN", 24), ("empty", "IN", 0), ("state", "IN", 16), ("y", "OUT", 10), ("z", "OUT", 1),
        ("x'", "OUT", 24),
    ]  # fmt: skip
    assert all(tuple(node) == COLUMNS for node in described["nodes"])
    assert described["kernels"][0]["locations"] == ["model.py:7", "model.py:8"]
    assert described["provenance"] == {"graph": "0123", "torch": "2.13.0"}


def test_the_text_has_the_documented_lines(tmp_path):
    path = tmp_path / "model.neff"
    path.write_bytes(DATA)
    text = as_text(describe(path))
    for line in ("Package Version:        2", "Number of Neuron cores: 1", "Enabled Features:"):
        assert line in text
    (heading,) = [line for line in text.splitlines() if "NODE" in line]
    assert tuple(heading.split()) == COLUMNS
    assert "model.py:7, model.py:8" in text
    assert "torch: 2.13.0" in text


def noted(notes: Notes) -> str:
    plain = neff()
    return as_text(
        describe(write(replace(plain, provenance={**plain.provenance, **notes.provenance()})))
    )


def test_inputs_have_the_names_of_the_program_that_was_compiled_first():
    inputs = (InputNote(WEIGHT, "layers.0.weight"), InputNote(INPUT, "x"))
    lines = noted(Notes("Head.forward", inputs, "a graph")).splitlines()
    begin = lines.index("First compiled for Head.forward, with these inputs:")
    assert [line.split() for line in lines[begin + 2 : begin + 5]] == [
        ["x", "layers.0.weight", "weight"],
        ["empty", "x"],
        [],
    ]
    assert not [line for line in lines if "note." in line]


def test_without_names_only_the_function_is_said():
    lines = noted(Notes("step")).splitlines()
    assert "First compiled for step" in lines
    assert "First compiled" not in noted(Notes())


def test_of_a_foreign_file_the_header_is_shown():
    described = describe(foreign() + b"anything")
    assert not described["is_ours"]
    assert described["header"]["Build Version"] == "1.0.5939.0"
    assert described["header"]["Enabled Features"] == "0x100"
    assert "only its header" in as_text(described)
    with pytest.raises(NeffFormatError, match=r"1\.0\.5939\.0"):
        unpack(foreign() + b"anything", "never")


def test_damage_is_not_described():
    with pytest.raises(NeffFormatError):
        describe(DATA[:-1])


def test_unpacked_members_are_the_members(tmp_path):
    paths = unpack(DATA, tmp_path / "new" / "folder")
    expected = members(DATA)
    assert [p.relative_to(tmp_path / "new" / "folder").as_posix() for p in paths] == [*expected]
    for path, data in zip(paths, expected.values(), strict=True):
        assert path.read_bytes() == data


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "sg00/../../escaped"])
def test_nothing_is_unpacked_outside_the_folder(tmp_path, name):
    with pytest.raises(NeffFormatError, match="name"):
        unpack(resealed(DATA, {name: b"x"}), tmp_path / "inner")
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize("content", [b"hello", DATA[:-100]], ids=["foreign", "cut off"])
@pytest.mark.parametrize("look", [describe, lambda path: unpack(path, path.parent / "out")])
def test_what_is_wrong_with_a_file_names_it_and_what_to_do(tmp_path, look, content):
    path = tmp_path / "x.neff"
    path.write_bytes(content)
    with pytest.raises(NeffFormatError) as error:
        look(path)
    assert error.value.where == str(path)
    assert error.value.remedy
    assert not (tmp_path / "out").exists()
