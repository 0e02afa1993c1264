"""`neff/without_gil.py`: the C API of the wheel is found, and gives what the binding gives."""

import pytest
from torch_mlir import ir
from torch_mlir.execution_engine import ExecutionEngine

from neuron_compile.neff import without_gil
from neuron_compile.neff.compile_object import compile_object

TEXT = "module { llvm.func @run() { llvm.return } }"


@pytest.fixture
def engine():
    with ir.Context():
        yield ExecutionEngine(ir.Module.parse(TEXT), opt_level=0, enable_pic=True)


def test_the_c_api_is_used_with_this_wheel():
    assert without_gil._lookup() is not without_gil._with_gil


def test_both_ways_find_the_same(engine):
    found = without_gil.lookup(engine, "run")
    assert found > 0
    assert without_gil._with_gil(engine, "run") == found


def test_a_missing_function_is_zero(engine):
    assert without_gil.lookup(engine, "walk") == 0
    assert without_gil._with_gil(engine, "walk") == 0


def test_without_the_c_api_the_binding_serves(monkeypatch):
    expected = compile_object(TEXT, ["run"])
    monkeypatch.setattr(without_gil.ctypes, "CDLL", lambda path: object())
    without_gil._lookup.cache_clear()
    assert without_gil._lookup() is without_gil._with_gil
    assert compile_object(TEXT, ["run"]) == expected
    without_gil._lookup.cache_clear()
