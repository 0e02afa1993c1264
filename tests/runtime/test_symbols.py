"""`runtime/symbols.py`: one OpenMP runtime, torch's; and none at all where there is no libgomp."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from neuron_compile.errors import ExecutionError
from neuron_compile.neff import compile_object
from neuron_compile.runtime import symbols
from neuron_compile.runtime.executable import Executable
from tests.runtime.programs import scale

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["memcpy", "memset", "sinf", "pow", "erf", "GOMP_parallel"])
def test_known_functions_have_addresses(name):
    assert symbols.resolve(name) > 0
    assert symbols.resolve(name) == symbols.resolve(name)


@pytest.mark.parametrize("name", ["system", "dlopen", "execve", "", "GOMP_parallel_start"])
def test_other_functions_are_never_looked_up(name):
    with pytest.raises(ExecutionError, match="may not call"):
        symbols.resolve(name)


def test_whatever_llvm_may_call_is_known_to_the_loader():
    assert set(compile_object._IMPLICIT_EXTERNALS) <= set(symbols._LIBRARY)


def test_a_function_this_machine_lacks_is_named(monkeypatch):
    monkeypatch.setitem(symbols._LIBRARY, "no_such_function", "libm.so.6")
    with pytest.raises(ExecutionError, match=r"'no_such_function', which libm\.so\.6"):
        symbols.resolve("no_such_function")


def test_without_libgomp_kernels_run_on_the_calling_thread(monkeypatch):
    monkeypatch.setattr(symbols, "_openmp", lambda: None)
    symbols.resolve.cache_clear()
    assert not symbols.openmp_is_parallel()
    x, y = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)
    Executable(scale()).run([x.ctypes.data, y.ctypes.data])
    symbols.resolve.cache_clear()
    np.testing.assert_array_equal(y, x * 2 + 3)


ORDERS = {
    "torch first": "import torch; symbols.resolve('GOMP_parallel')",
    "torch last": "symbols.resolve('GOMP_parallel'); import torch",
}


@pytest.mark.parametrize("order", ORDERS)
def test_there_is_one_openmp_runtime_in_the_process(order):
    script = f"""
from neuron_compile.runtime import symbols
{ORDERS[order]}
torch.rand(1000, 1000).sum()
print(len({{line.split()[-1] for line in open("/proc/self/maps") if "libgomp" in line}}))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2"},
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1"]
