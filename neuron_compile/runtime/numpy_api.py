"""Run a NEFF on NumPy arrays, in a process that has neither torch nor a compiler.

In: the path of a NEFF (or its bytes), then arrays. Out: new arrays. Invariant: a wrong number of
arrays, dtype or shape is an ExecutionError before any code runs. Strides do not matter to callers,
unless those of the program make elements share memory: these must then be equal.
"""

from __future__ import annotations

import functools
import importlib
import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from neuron_compile.errors import ExecutionError
from neuron_compile.neff.reader import Source, read
from neuron_compile.neff.schema import TensorSpec, row_major
from neuron_compile.runtime.executable import Executable, aligned_bytes

Array = npt.NDArray[Any]


def load(source: Source) -> Program:
    """Load a NEFF from a path or bytes.

    Raises NeffFormatError for a damaged file, NeffTargetError for one of another CPU, OSError for
    one that cannot be opened.
    """
    return Program(Executable(read(source)))


class Program:
    """A compiled program as a function of NumPy arrays.

    bfloat16 inputs may be `ml_dtypes.bfloat16` arrays or their bits as uint16; bfloat16 outputs are
    `ml_dtypes.bfloat16` where that package is installed, else their bits as uint16.
    """

    def __init__(self, executable: Executable) -> None:
        plan = executable.neff.plan
        self._run = executable.run
        self._uses_random = plan.uses_random
        self.name = executable.neff.name
        self.inputs: tuple[TensorSpec, ...] = plan.inputs[: len(plan.inputs) - plan.uses_random]
        self._checks = plan.checks
        self.outputs: tuple[TensorSpec, ...] = plan.outputs

    def __call__(
        self, *arrays: Array, random_state: Sequence[int] | None = None
    ) -> tuple[Array, ...]:
        """Run once; returns one new array per output.

        Raises ExecutionError where the values are not such that the program can go on: an index out
        of range, an assertion of the model.

        `random_state` is two integers below 2**64 (key, counter) for a program that draws random
        numbers, and is drawn from the system if it is left out.
        """
        if len(arrays) != len(self.inputs):
            raise ExecutionError(
                f"{self.name} takes {len(self.inputs)} arrays, not {len(arrays)}",
                why=f"its inputs are {', '.join(map(_describe, self.inputs)) or 'none'}",
            )
        pairs = zip(self.inputs, arrays, strict=True)
        ready = [_prepare(n, spec, array) for n, (spec, array) in enumerate(pairs)]
        if self._uses_random:
            ready.append(_random_state(random_state))
        results = [_allocate(spec, _dtypes(spec.dtype)[0]) for spec in self.outputs]
        failed = self._run([array.ctypes.data for array in (*ready, *results)])
        if failed:
            raise ExecutionError(
                f"{self.name} refuses these inputs: {self._checks[failed - 1]}",
                why="PyTorch raises an error for them as well",
            )
        return tuple(results)


def _describe(spec: TensorSpec) -> str:
    return f"{spec.name}: {spec.dtype}{list(spec.shape)}"


def _prepare(number: int, spec: TensorSpec, array: Array) -> Array:
    """The array itself if it lies in memory as the program expects, else a copy that does."""
    if not isinstance(array, np.ndarray):
        raise ExecutionError(
            f"input {number} ({_describe(spec)}) is a {type(array).__name__}",
            why="only NumPy arrays are taken: a list or a scalar has no element type of its own",
            remedy="numpy.asarray(value, dtype)",
        )
    accepted = _dtypes(spec.dtype)
    if array.dtype not in accepted:
        raise ExecutionError(
            f"input {number} ({_describe(spec)}) has dtype {array.dtype}",
            why="the code is compiled for one element type and never converts",
            remedy=f"array.astype(numpy.{accepted[0].name})",
        )
    if array.shape != spec.shape:
        raise ExecutionError(
            f"input {number} ({_describe(spec)}) has shape {list(array.shape)}",
            why="the code is compiled for one shape",
            remedy="call with the shape above, or compile for this shape",
        )
    if array.flags.aligned and _same_layout(spec, array):
        return array
    copy = _allocate(spec, array.dtype)  # not the spec's: bits given as uint16 stay bits
    copy[...] = array
    if _may_overlap(spec) and not _same_bits(copy, array):
        raise ExecutionError(
            f"input {number} ({_describe(spec)}) cannot be laid out as the code expects it",
            why=f"it is compiled for strides {list(spec.strides)}, where several elements share "
            "one place in memory, and the array has different values for such elements",
            remedy="call with an array whose sharing elements are equal (numpy.broadcast_to for a "
            "stride of 0), or compile for a contiguous input (tensor.contiguous())",
        )
    return copy


def _same_layout(spec: TensorSpec, array: Array) -> bool:
    wanted = (stride * array.itemsize for stride in spec.strides)
    return (
        all(
            have == want or extent <= 1
            for have, want, extent in zip(array.strides, wanted, spec.shape, strict=True)
        )
        or not array.size
    )


def _may_overlap(spec: TensorSpec) -> bool:
    """False if no two indices can name the same element: each stride leaves the smaller ones'
    extent. True for some layouts that interleave without overlapping: they are only checked more.
    """
    extent = 0
    for stride, size in sorted(zip(spec.strides, spec.shape, strict=True)):
        if size > 1 and stride <= extent:
            return True
        extent += stride * (size - 1)
    return False


def _same_bits(left: Array, right: Array) -> bool:
    """Also the same NaN and the same sign of zero, element by element."""
    bits = np.dtype(f"V{left.itemsize}")
    return bool(np.array_equal(left.view(bits), right.view(bits)))


def _allocate(spec: TensorSpec, dtype: np.dtype[Any]) -> Array:
    """An uninitialised array with the strides of the spec."""
    buffer = aligned_bytes(spec.nbytes).view(dtype)
    if spec.strides == row_major(spec.shape):
        return buffer.reshape(spec.shape)
    strides = [stride * dtype.itemsize for stride in spec.strides]
    return np.lib.stride_tricks.as_strided(buffer, spec.shape, strides)


def _random_state(given: Sequence[int] | None) -> Array:
    state = (secrets.randbits(64), 0) if given is None else tuple(given)
    if len(state) != 2 or not all(0 <= word < 1 << 64 for word in state):
        raise ExecutionError(
            f"random_state is {given!r}", why="it must be two integers from 0 to 2**64 - 1"
        )
    return np.array(state, np.uint64)


@functools.cache
def _dtypes(name: str) -> tuple[np.dtype[Any], ...]:
    """NumPy element types accepted for one of ours; results have the first."""
    if name != "bfloat16":
        return (np.dtype(name),)
    try:
        bfloat16 = importlib.import_module("ml_dtypes").bfloat16
    except ImportError:
        return (np.dtype(np.uint16),)
    return (np.dtype(bfloat16), np.dtype(np.uint16))
