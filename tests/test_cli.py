"""The command line, on a cache filled by the real compiler."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from neuron_compile import environment, options
from neuron_compile.cache.layout import quarantine_path
from neuron_compile.cache.notes import is_note
from neuron_compile.call_plan import OutputRule, plan
from neuron_compile.cli import app
from neuron_compile.compiler import Job, executable, forget_executables
from neuron_compile.environment import Environment
from neuron_compile.errors import NeffFormatError
from neuron_compile.neff.reader import read
from neuron_compile.neff.target import detect
from neuron_compile.neff.writer import write
from neuron_compile.options import Options
from tests.graphs import aten_graph


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    """A cache with x * 2 for two sizes and x * 3 for one."""
    root = tmp_path_factory.mktemp("cache")
    forget_executables()
    for factor, size in ((2.0, 5), (2.0, 6), (3.0, 5)):
        graph = aten_graph(lambda x, f=factor: x * f, torch.ones(size))
        work, _ = plan(graph, [OutputRule()])
        executable(Job(work, "inference", Options(), Environment(cache_dir=root), {}))
    return root


@pytest.fixture
def call(filled: Path, monkeypatch):
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(filled))
    monkeypatch.setenv("COLUMNS", "160")

    def call(*args: str, code: int = 0, **kwargs) -> str:
        result = CliRunner().invoke(app, args, **kwargs)
        assert result.exit_code == code, result.output
        return result.output

    return call


def entries(root: Path) -> list[Path]:
    return sorted(root.rglob("*.neff"))


def graph_of_two_sizes(root: Path) -> str:
    names = [p.parent.name for p in entries(root)]
    return next(name for name in names if names.count(name) == 2)


def test_ls(call, filled: Path) -> None:
    text = call("cache", "ls")
    for entry in entries(filled):
        assert entry.parent.name[:8] in text
    listed = json.loads(call("cache", "ls", "--json"))
    assert sorted(item["path"] for item in listed) == [str(p) for p in entries(filled)]


def test_ls_says_what_an_entry_is_of_in_80_columns(call, filled: Path, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = call("cache", "ls").splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line for line in lines if "inference" in line]
    assert len(rows) == 3
    assert sum("f32[5]" in row for row in rows) == 2
    assert all("KiB" in row and "now" in row for row in rows)
    listed = json.loads(call("cache", "ls", "--json"))
    assert sorted(item["inputs"] for item in listed) == [["f32[5]"], ["f32[5]"], ["f32[6]"]]


def test_ls_of_an_empty_cache_says_so(call, tmp_path: Path) -> None:
    assert f"no entries in {tmp_path}" in call("cache", "ls", "--root", str(tmp_path))


def test_ls_lists_a_damaged_entry_as_such(call, filled: Path, tmp_path: Path) -> None:
    entry = entries(filled)[0]
    copy = tmp_path / entry.relative_to(filled)
    copy.parent.mkdir(parents=True)
    copy.write_bytes(entry.read_bytes()[:-100])
    assert "(unreadable: see `cache verify`)" in call("cache", "ls", "--root", str(tmp_path))


def test_usage_and_verify(call, filled: Path) -> None:
    assert "3 entries" in call("cache", "usage")
    assert "3 entries, 0 damaged" in call("cache", "verify")


def test_usage_says_from_what_age_on_gc_removes_leftovers(call, filled: Path, tmp_path) -> None:
    entry = entries(filled)[0]
    left = quarantine_path(tmp_path / entry.relative_to(filled))
    left.parent.mkdir(parents=True)
    left.write_bytes(b"damaged")
    root = ("--root", str(tmp_path))
    text = call("cache", "usage", *root)
    assert "0 unfinished and 1 damaged files" in text
    assert "removes those that are older than 60 minutes" in text
    assert "removed 0 files" in call("cache", "gc", *root)
    old = time.time() - 61 * 60
    os.utime(left, (old, old))
    assert "removed 1 files" in call("cache", "gc", *root)
    assert "damaged" not in call("cache", "usage", *root)


@pytest.mark.parametrize("command", ["ls", "usage", "verify", "gc", "clear"])
def test_a_named_directory_that_is_not_there_is_an_error(call, tmp_path: Path, command) -> None:
    missing = tmp_path / "missing"
    text = call("cache", command, "--root", str(missing), code=1)
    assert f"there is no directory {missing}" in text.replace("\n", "")
    assert not missing.exists()


def test_the_default_directory_may_be_still_to_come(call, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(tmp_path / "later"))
    assert json.loads(call("cache", "ls", "--json")) == []
    assert "0 entries" in call("cache", "usage")


def test_verify_names_the_damaged(call, filled: Path) -> None:
    entry = entries(filled)[0]
    sound = entry.read_bytes()
    entry.write_bytes(sound[:-100])
    try:
        assert str(entry) in call("cache", "verify", code=1)
        with pytest.raises(NeffFormatError, match="the NEFF is not valid") as error:
            CliRunner().invoke(app, ["cache", "show", entry.parent.name], catch_exceptions=False)
        assert error.value.where == str(entry)
        assert f"cache clear {entry.parent.name[:12]}" in error.value.remedy
    finally:
        entry.write_bytes(sound)


def test_show_and_info(call, filled: Path) -> None:
    entry = entries(filled)[0]
    assert call("info", str(entry)) in call("cache", "show", entry.parent.name[:8])
    described = json.loads(call("info", "--json", str(entry)))
    assert described["is_ours"] is True
    assert "no entry" in call("cache", "show", "ffffffffffffffff", code=1)


def test_explain_says_what_differs(call, filled: Path) -> None:
    two = graph_of_two_sizes(filled)
    other = next(p.parent.name for p in entries(filled) if p.parent.name != two)
    assert call("cache", "explain", other, two).splitlines()[-3:] == [
        "line 2 of the graph",
        "  this  %1 = aten::mul.Tensor(%0, 3.0)",
        "  that  %1 = aten::mul.Tensor(%0, 2.0)",
    ]
    nearest = call("cache", "explain", two)
    assert "the most similar of the other entries" in nearest
    assert "input 0\n  this  float32[" in nearest
    assert "line" not in nearest


def test_explain_of_entries_without_notes_says_that_the_graph_differs(
    call, filled: Path, tmp_path: Path
) -> None:
    """Of those that were written before notes were taken."""
    two = graph_of_two_sizes(filled)
    for entry in entries(filled):
        neff = read(entry)
        plain = {name: text for name, text in neff.provenance.items() if not is_note(name)}
        copy = tmp_path / entry.relative_to(filled)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(write(replace(neff, provenance=plain)))
    other = next(p.parent.name for p in entries(filled) if p.parent.name != two)
    text = call("cache", "explain", other, two, "--root", str(tmp_path))
    assert text.splitlines()[-1] == "graph differs"


def test_explain_keeps_to_80_columns(call, filled: Path, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = call("cache", "explain", entries(filled)[0].parent.name[:8])
    assert max(map(len, text.splitlines())) <= 80


def test_unpack(call, filled: Path, tmp_path: Path) -> None:
    call("unpack", str(entries(filled)[0]), str(tmp_path / "out"))
    assert (tmp_path / "out" / "neff.json").is_file()
    assert "not an empty folder" in call(
        "unpack", str(entries(filled)[0]), str(tmp_path / "out"), code=1
    )


def test_options_lists_every_knob(call) -> None:
    text = call("options")
    for knob in (*options.KNOBS.values(), *environment.KNOBS.values()):
        assert knob.name in text


def test_options_keep_to_80_columns(call, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, call("options").splitlines())) <= 80


def test_target(call) -> None:
    assert call("target").strip() == detect().name


def test_gc_and_clear(call, filled: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for entry in entries(filled):
        place = copy / entry.relative_to(filled)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(entry.read_bytes())
    root = ("--root", str(copy))
    assert "removed 0 files" in call("cache", "gc", *root, "--max-size", "1G")
    assert "removed 2 files" in call("cache", "clear", graph_of_two_sizes(copy), *root, "--yes")
    call("cache", "clear", *root, input="n\n", code=1)
    assert len(entries(copy)) == 1
    assert "removed 1 files" in call("cache", "gc", *root, "--max-size", "0")
    assert entries(copy) == []


@pytest.mark.parametrize("size", ["lots", "-5", ""])
def test_nonsense_size(call, size: str) -> None:
    if size:
        assert "is not a size" in call("cache", "gc", "--max-size", size, code=1)
    else:
        call("cache", "gc", "--max-size", size)


def test_error_is_one_message_without_a_traceback(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.neff"
    damaged.write_bytes(b"not a NEFF")
    done = subprocess.run(
        [sys.executable, "-m", "neuron_compile", "info", str(damaged)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_command_line_loads_no_torch() -> None:
    code = (
        "import sys, neuron_compile.cli; print([m for m in sys.modules if m.startswith('torch')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "[]"


def test_without_typer_it_says_what_is_missing(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "neuron_compile.cli")
    with pytest.raises(SystemExit, match="pip install typer"):
        importlib.import_module("neuron_compile.cli")
