"""The files that follow from the registry are up to date."""

from __future__ import annotations

import pathlib

from neuron_compile.lowering import coverage

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOW = "stale: run python -m neuron_compile.lowering.coverage"


def test_table_of_operators_is_not_stale() -> None:
    assert (ROOT / "docs" / "ops.md").read_text(encoding="utf-8") == coverage.table_text(), HOW


def test_list_of_undecomposed_operators_is_not_stale() -> None:
    written = (ROOT / "lowering" / "kept_whole.py").read_text(encoding="utf-8")
    assert written == coverage.kept_whole_text(), HOW


def test_table_marks_conditions() -> None:
    assert "int\\*" not in coverage.table_text()
    assert "| `aten.view` | default, dtype\\* |" not in coverage.table_text()
    assert "dtype\\*" in coverage.table_text()
