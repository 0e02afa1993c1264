"""`runtime/numpy_api.py`: NumPy in, NumPy out, where neither torch nor MLIR can be imported."""

import dataclasses
import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import neuron_compile
from neuron_compile.errors import ExecutionError, NeffFormatError
from neuron_compile.neff.schema import tensor
from neuron_compile.neff.writer import write
from neuron_compile.runtime import numpy_api
from neuron_compile.runtime.executable import ALIGNMENT
from tests.runtime.programs import copy, scale

ROOT = Path(__file__).resolve().parents[2]

POISONED = """
import sys

class Poison:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "torch_mlir", "elftools", "filelock"):
            raise ImportError(f"{name} must not be imported")

sys.meta_path.insert(0, Poison())
import numpy as np
import neuron_compile
program = neuron_compile.load(sys.argv[1])
(y,) = program(np.arange(1000, dtype=np.float32))
assert np.array_equal(y, np.arange(1000, dtype=np.float32) * 2 + 3)
loaded = {name.split(".")[0] for name in sys.modules}
assert not loaded & {"torch", "torch_mlir", "elftools", "filelock"}, loaded
print(program.name, [(s.name, s.dtype, s.shape) for s in (*program.inputs, *program.outputs)])
"""


def test_a_process_without_torch_and_mlir_runs_a_neff(tmp_path):
    path = tmp_path / "scale.neff"
    path.write_bytes(write(scale()))
    done = subprocess.run(
        [sys.executable, "-c", POISONED, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "sample [('x', 'float32', (1000,)), ('y', 'float32', (1000,))]"


def test_bytes_and_paths_give_the_same(tmp_path):
    path = tmp_path / "scale.neff"
    path.write_bytes(write(scale()))
    x = np.linspace(-5, 5, 1000, dtype=np.float32)
    for source in (path, str(path), path.read_bytes()):
        (y,) = neuron_compile.load(source)(x)
        np.testing.assert_array_equal(y, x * 2 + 3)


def test_damage_is_reported_not_run(tmp_path):
    path = tmp_path / "scale.neff"
    damaged = bytearray(write(scale()))
    damaged[-2000] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(NeffFormatError, match=r"scale\.neff"):
        neuron_compile.load(path)


def program(source, result, **options):
    return neuron_compile.load(write(copy(source, result, **options)))


def test_strides_of_the_caller_do_not_matter():
    run = program(tensor("x", "int32", (3, 4)), tensor("y", "int32", (3, 4), (1, 3)))
    x = np.arange(24, dtype=np.int32).reshape(4, 6)[:, ::2].T
    assert not x.flags.c_contiguous
    (y,) = run(x)
    # the program copies bytes, so the result holds x in row-major order seen column by column
    np.testing.assert_array_equal(y.T.ravel(), x.ravel())
    assert y.strides == (4, 12)


def test_strided_inputs_get_the_layout_they_were_compiled_for():
    run = program(tensor("x", "int32", (3, 4), (1, 3)), tensor("y", "int32", (3, 4), (1, 3)))
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    for given in (x, np.asfortranarray(x), np.ascontiguousarray(x[::-1])[::-1]):
        np.testing.assert_array_equal(run(given)[0], x)


SHARING = [((4, 5), (0, 1)), ((4, 5), (1, 0)), ((4, 4), (1, 1)), ((2, 3, 2), (1, 0, 1))]


def sharing(dtype, shape, strides):
    """(A program whose input has these strides, an array whose sharing elements are equal)."""
    spec = tensor("x", dtype, shape, strides)
    run = program(spec, tensor("y", dtype, shape, strides))
    flat = np.arange(1, spec.nbytes // np.dtype(dtype).itemsize + 1).astype(dtype)
    steps = [step * flat.itemsize for step in strides]
    return run, np.lib.stride_tricks.as_strided(flat, shape, steps).copy()


@pytest.mark.parametrize(("shape", "strides"), SHARING)
@pytest.mark.parametrize("dtype", ["uint8", "float32", "complex128"])
def test_elements_that_share_memory_must_be_equal(dtype, shape, strides):
    run, x = sharing(dtype, shape, strides)
    np.testing.assert_array_equal(run(x)[0], x)
    for index in ((1,) * len(shape), (1, *(0,) * (len(shape) - 1))):
        wrong = x.copy()
        wrong[index] = 99
        with pytest.raises(ExecutionError, match=r"input 0 .* cannot be laid out") as caught:
            run(wrong)
        assert str(list(strides)) in caught.value.why
        assert "broadcast_to" in caught.value.remedy


def test_elements_that_share_memory_may_be_nan_but_not_zeros_of_both_signs():
    run, x = sharing("float32", (4, 5), (0, 1))
    x[:, 2], x[:, 3] = np.nan, -0.0
    (y,) = run(x)
    np.testing.assert_array_equal(y, x)
    assert np.signbit(y[:, 3]).all()
    x[1, 3] = 0.0  # one over it has another sign
    with pytest.raises(ExecutionError, match="cannot be laid out"):
        run(x)


def test_an_array_that_shares_as_the_program_does_is_taken_as_it_is():
    run, x = sharing("float32", (4, 5), (0, 1))
    given = np.broadcast_to(x[0], (4, 5))
    assert not given.flags.writeable
    np.testing.assert_array_equal(run(given)[0], x)


def test_padding_and_interleaving_share_nothing():
    for shape, strides in (((3, 4), (7, 1)), ((2, 3), (3, 2)), ((1, 4), (0, 1)), ((3, 1), (1, 0))):
        x = np.arange(float(np.prod(shape))).reshape(shape)
        spec = tensor("x", "float64", shape, strides)
        run = program(spec, dataclasses.replace(spec, name="y"))
        np.testing.assert_array_equal(run(np.repeat(x, 2, 0)[::2])[0], x)


def test_unaligned_arrays_are_copied():
    run = program(tensor("x", "float64", (3,)), tensor("y", "float64", (3,)))
    x = np.frombuffer(bytes(1) + np.arange(3.0).tobytes(), np.uint8)[1:].view(np.float64)
    assert not x.flags.aligned
    np.testing.assert_array_equal(run(x)[0], np.arange(3.0))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "complex64"])
@pytest.mark.parametrize("shape", [(), (5,), (2, 0, 3)])
def test_every_kind_of_array_passes_through(dtype, shape):
    run = program(tensor("x", dtype, shape), tensor("y", dtype, shape))
    x = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    (y,) = run(x)
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    np.testing.assert_array_equal(y, x)


def test_bfloat16_without_ml_dtypes_is_uint16(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    numpy_api._dtypes.cache_clear()
    run = program(tensor("x", "bfloat16", (2,)), tensor("y", "bfloat16", (2,)))
    (y,) = run(np.array([0x3F80, 0x4000], np.uint16))
    assert y.dtype == np.uint16
    numpy_api._dtypes.cache_clear()


def test_bfloat16_with_ml_dtypes_is_its_type(monkeypatch):
    fake = types.ModuleType("ml_dtypes")
    fake.bfloat16 = np.float16  # stands for a type of two bytes that is not uint16
    monkeypatch.setitem(sys.modules, "ml_dtypes", fake)
    numpy_api._dtypes.cache_clear()
    run = program(tensor("x", "bfloat16", (2,)), tensor("y", "bfloat16", (2,)))
    bits = np.array([1, 2], np.uint16)
    strided = np.array([1, 0, 2, 0], np.uint16)[::2]  # which has to be copied, not converted
    for given in (bits, bits.view(np.float16), strided):
        (y,) = run(given)
        assert y.dtype == np.float16
        np.testing.assert_array_equal(y.view(np.uint16), bits)
    numpy_api._dtypes.cache_clear()


def test_random_state_is_drawn_or_given():
    state = tensor("state", "uint64", (2,))
    run = program(state, tensor("y", "uint64", (2,)), uses_random=True)
    assert run.inputs == ()
    assert run()[0].tolist() != run()[0].tolist()
    assert run(random_state=(2**64 - 1, 7))[0].tolist() == [2**64 - 1, 7]
    for wrong in ((1,), (-1, 0), (2**64, 0)):
        with pytest.raises(ExecutionError, match="random_state"):
            run(random_state=wrong)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), r"takes 1 arrays, not 0.*\n.*x: float32\[1000\]"),
        ((np.zeros(1000, np.float32),) * 2, "takes 1 arrays, not 2"),
        ((np.zeros(1000),), r"input 0 \(x: float32\[1000\]\) has dtype float64"),
        ((np.zeros(1000, ">f4"),), "has dtype >f4"),
        ((np.zeros(999, np.float32),), r"has shape \[999\]"),
        ((np.zeros((1000, 1), np.float32),), r"has shape \[1000, 1\]"),
        (([0.0] * 1000,), "is a list"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(arguments, message):
    run = neuron_compile.load(write(scale()))
    with pytest.raises(ExecutionError, match=message):
        run(*arguments)


@pytest.mark.parametrize("shape", [(), (5,), (3 << 20,)])
def test_results_begin_at_a_cache_line(shape):
    """As large results are stored line by line; NumPy's own memory begins 16 bytes into one."""
    run = program(tensor("x", "float32", shape), tensor("y", "float32", shape))
    (result,) = run(np.zeros(shape, np.float32))
    assert result.shape == shape
    assert result.ctypes.data % ALIGNMENT == 0
