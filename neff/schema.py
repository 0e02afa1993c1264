"""The records a NEFF is made of; `writer` takes them, `reader` gives them back equal.

Plain frozen data without behaviour beyond sizes. Invariant: a NEFF says everything that running it
needs, and nothing in it is code except `Image.code`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from neuron_compile.neff.target import Target

# Our own version of what the documented container leaves open: host.json and the image.
FORMAT = 3
# Text in the header that tells our files from all others.
BUILD_VERSION = f"neuron-compile format {FORMAT}"
ENTRY = "run"

# Element types by name, with bytes per element. NumPy has no bfloat16; there it travels as uint16.
DTYPE_BYTES = MappingProxyType({
    "bool": 1, "uint8": 1, "int8": 1,
    "uint16": 2, "int16": 2, "float16": 2, "bfloat16": 2,
    "uint32": 4, "int32": 4, "float32": 4,
    "uint64": 8, "int64": 8, "float64": 8, "complex64": 8,
    "complex128": 16,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One buffer. `strides` are in elements; `nbytes` spans the first to the last element."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled kernel: its group's kind, launches per run, the user's lines behind it."""

    name: str
    kind: str
    launches: int
    locations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Image:
    """A linked image. All offsets are in bytes from its start; `code` is the whole image.

    `[0, text_end)` is executable. Within `got_range` the loader stores the address of each external
    `got` symbol and `base + addend` for each of `relocations`. Everything else is read-only.
    """

    code: bytes | memoryview
    text_end: int
    got: tuple[tuple[int, str], ...]
    relocations: tuple[tuple[int, int], ...]
    got_range: tuple[int, int]
    exports: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HostPlan:
    """How to call `int64 run(void** buffers)`: inputs, outputs, constants and the arena, in order.

    The arena is `scratch_bytes` of uninitialised memory, 64-byte aligned and private to one call.
    With `uses_random` the last input is the random state (`uint64[2]`), new for each call.

    `in_place` lists pairs (output, input) that a caller may give the same memory: the output is
    the input's new value, and the rest of the program never reads the input after it is written.

    `run` returns 0, or the number, from 1, of the check that is not met: what `checks` says of it
    is for the caller to raise. Nothing was written in place then; outputs have no meaning.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    constants: tuple[TensorSpec, ...]
    scratch_bytes: int
    uses_random: bool
    kernels: tuple[Kernel, ...]
    in_place: tuple[tuple[int, int], ...] = ()
    checks: tuple[str, ...] = ()

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        return (*self.inputs, *self.outputs, *self.constants)


@dataclass(frozen=True, slots=True)
class Neff:
    """The whole content. `constant_data` holds the bytes of `plan.constants`, row-major.

    `provenance` maps key parts and versions to digests and texts; `portable` is the StableHLO
    module before the passes, so that a NEFF can be built again for another target; `macs` counts
    the multiply-accumulates of one run.
    """

    name: str
    target: Target
    plan: HostPlan
    image: Image
    constant_data: tuple[bytes | memoryview, ...]
    provenance: Mapping[str, str]
    portable: bytes | memoryview
    macs: int


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Element strides of a contiguous tensor, as PyTorch gives them (sizes 0 and 1 count as 1)."""
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def span_bytes(dtype: str, shape: Sequence[int], strides: Sequence[int]) -> int:
    """Bytes from the first to the last element; 0 for an empty tensor."""
    if 0 in shape:
        return 0
    last = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    return (last + 1) * DTYPE_BYTES[dtype]


def tensor(
    name: str, dtype: str, shape: Sequence[int], strides: Sequence[int] | None = None
) -> TensorSpec:
    """A spec with its size computed; row-major unless `strides` (in elements) are given."""
    steps = row_major(shape) if strides is None else tuple(strides)
    return TensorSpec(name, dtype, tuple(shape), steps, span_bytes(dtype, shape, steps))


def page_bytes(target: Target) -> int:
    """Alignment of the image in the file: the largest page a kernel for the target may use."""
    return 65536 if target.isa == "aarch64" else 4096
