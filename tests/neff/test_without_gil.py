"""`neff/without_gil.py`: the C API of the wheel is found, and gives what the bindings give."""

import pytest
from torch_mlir import ir
from torch_mlir.execution_engine import ExecutionEngine

from neuron_compile.neff import without_gil
from neuron_compile.neff.compile_object import compile_object

TEXT = "module { llvm.func @run() { llvm.return } }"
PIPELINE = "builtin.module(convert-scf-to-cf,convert-to-llvm)"


@pytest.fixture
def engine():
    with ir.Context():
        yield ExecutionEngine(ir.Module.parse(TEXT), opt_level=0, enable_pic=True)


@pytest.fixture
def bindings_only(monkeypatch):
    """As in a wheel that exports no C API."""
    monkeypatch.setattr(without_gil.ctypes, "CDLL", lambda path: object())
    without_gil._native.cache_clear()
    assert without_gil._native() is None
    yield
    without_gil._native.cache_clear()


def test_the_c_api_is_used_with_this_wheel():
    assert without_gil._native() is not None


def test_an_address_is_the_bindings_address(engine):
    found = without_gil.lookup(engine, "run")
    assert found > 0
    assert engine.raw_lookup("run") == found


def test_a_missing_function_is_zero(engine):
    assert without_gil.lookup(engine, "walk") == 0


def test_a_missing_function_is_zero_for_the_bindings_too(engine, bindings_only):
    assert without_gil.lookup(engine, "walk") == 0


def test_a_lowered_module_belongs_to_python():
    """It outlives the call, prints, and is freed with its last reference."""
    loop = """module { llvm.func @run(%n: i64, %p: !llvm.ptr) {
      %zero = arith.constant 0 : i64
      %one = arith.constant 1 : i64
      scf.for %i = %zero to %n step %one : i64 { llvm.store %i, %p : i64, !llvm.ptr }
      llvm.return
    } }"""
    with ir.Context():
        module = without_gil.lowered(loop, PIPELINE)
        assert module.operation.verify()
        assert "llvm.cond_br" in str(module)
        assert "scf.for" not in str(module)


@pytest.mark.parametrize("native", [True, False])
def test_a_refusal_has_diagnostics(native, request):
    if not native:
        request.getfixturevalue("bindings_only")
    with ir.Context(), pytest.raises(ir.MLIRError) as refused:
        without_gil.lowered("module { what }", PIPELINE)
    assert "what" in str(refused.value.error_diagnostics[0].message)


def test_without_the_c_api_the_bindings_serve(bindings_only, monkeypatch):
    made = compile_object(TEXT, ["run"])
    monkeypatch.undo()
    without_gil._native.cache_clear()
    assert without_gil._native() is not None
    assert compile_object(TEXT, ["run"]) == made
