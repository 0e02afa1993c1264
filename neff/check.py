"""What must hold for the records of a NEFF before anything is allocated, mapped or called.

In: records from a writer's caller or from a parsed file, whose fields may have any JSON type. Out:
nothing, or NeffFormatError. Invariant: after these checks no offset leaves the image, no slot lies
outside the part that the loader may write, and every size is the one that its shape implies.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from neuron_compile.errors import NeffFormatError
from neuron_compile.neff.schema import (
    DTYPE_BYTES,
    ENTRY,
    HostPlan,
    Image,
    Kernel,
    TensorSpec,
    row_major,
    span_bytes,
)

_MAX_BYTES = 1 << 46  # below the size of a process's address space, so sums of sizes cannot wrap
_MAX_RANK = 64
_MAX_NAME = 256
_SLOT_BYTES = 8


def require(holds: bool, what: str, value: object = "") -> None:
    """Raise NeffFormatError saying `what` is wrong, unless it holds."""
    if not holds:
        # reprlib bounds depth and length: a hostile file may nest as deep as Python's own limit.
        raise NeffFormatError(f"the NEFF is not valid: {what}", why=f"found {reprlib.repr(value)}")


def is_size(value: Any, limit: int = _MAX_BYTES) -> bool:
    """True for a plain integer in [0, limit); a bool is not one."""
    return type(value) is int and 0 <= value < limit


def is_name(value: Any) -> bool:
    return type(value) is str and 0 < len(value) <= _MAX_NAME and value.isprintable()


def is_text(value: Any) -> bool:
    """True for a string that can be written as UTF-8: JSON's escapes can spell lone surrogates."""
    if type(value) is not str:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_provenance(provenance: Any) -> None:
    """Check texts that become keys, messages and lines of a report."""
    require(
        isinstance(provenance, Mapping)
        and all(is_name(name) and is_text(text) for name, text in provenance.items()),
        "the provenance is not texts in UTF-8 under printable names",
        provenance,
    )


def check_tensor_type(spec: TensorSpec) -> None:
    """Check everything but the name, which many tensors of one type need only once."""
    dtype, shape, strides = spec.dtype, spec.shape, spec.strides
    require(type(dtype) is str and dtype in DTYPE_BYTES, "an element type", dtype)
    require(len(shape) == len(strides) <= _MAX_RANK, "the rank of a tensor", (shape, strides))
    require(
        all(map(is_size, shape)) and all(map(is_size, strides)),
        "shape or strides of a tensor",
        (shape, strides),
    )
    require(
        is_size(spec.nbytes) and spec.nbytes == span_bytes(dtype, shape, strides),
        f"the size of a tensor of {dtype}, shape {shape}, strides {strides}",
        spec.nbytes,
    )


def check_plan(plan: HostPlan) -> None:
    """Check a plan whose tensors have passed `check_tensor_type`."""
    names = [spec.name for spec in plan.tensors]
    require(all(map(is_name, names)), "the names of its tensors", names)
    require(len(set(names)) == len(names), "two tensors have one name", names)
    for spec in plan.constants:
        require(spec.strides == row_major(spec.shape), "a constant is not row-major", spec)
    require(is_size(plan.scratch_bytes), "the size of the arena", plan.scratch_bytes)
    require(type(plan.uses_random) is bool, "uses_random is not a truth value", plan.uses_random)
    if plan.uses_random:
        state = plan.inputs[-1:]
        require(
            len(state) == 1 and state[0].dtype == "uint64" and state[0].shape == (2,),
            "the last input is not a random state (uint64[2])",
            state,
        )
    _check_in_place(plan)
    require(all(map(is_text, plan.checks)), "the messages of checks", plan.checks)
    for kernel in plan.kernels:
        _check_kernel(kernel)


def _check_in_place(plan: HostPlan) -> None:
    """Memory that a caller shares between two buffers must fit both, and belong to no third."""
    for output, source in plan.in_place:
        require(
            is_size(output, len(plan.outputs)) and is_size(source, len(plan.inputs)),
            "a pair of buffers that may be the same memory",
            (output, source),
        )
        new, old = plan.outputs[output], plan.inputs[source]
        require(
            (new.dtype, new.shape, new.strides) == (old.dtype, old.shape, old.strides),
            "an output in the place of another type of input",
            (new, old),
        )
    for side in zip(*plan.in_place, strict=True):
        require(len(set(side)) == len(side), "a buffer that is in two places", side)


def _check_kernel(kernel: Kernel) -> None:
    require(is_name(kernel.name) and is_name(kernel.kind), "name or kind of a kernel", kernel)
    require(is_size(kernel.launches), f"the launches of kernel {kernel.name}", kernel.launches)
    require(
        all(map(is_text, kernel.locations)),
        f"the locations of kernel {kernel.name}",
        kernel.locations,
    )


def check_image(image: Image, page: int) -> None:
    """Check a linked image whose protection boundaries must be multiples of `page` bytes."""
    size = len(image.code)
    got_start, got_end = image.got_range
    boundaries = (0, image.text_end, got_start, got_end)
    require(
        all(map(is_size, boundaries))
        and got_end == size
        and all(low <= high for low, high in pairwise(boundaries))
        and not any(boundary % page for boundary in boundaries)
        and image.text_end > 0,
        f"the parts of the image are not in order or not multiples of {page}",
        (*boundaries, size),
    )
    slots = [*(at for at, _ in image.got), *(at for at, _ in image.relocations)]
    _check_slots(slots, got_start, got_end)
    require(all(is_name(symbol) for _, symbol in image.got), "a symbol's name", image.got)
    for _, addend in image.relocations:
        require(is_size(addend, size), "a relocation leads outside the image", addend)
    for name, offset in image.exports.items():
        require(is_name(name), "the name of an export", name)
        require(is_size(offset, image.text_end), f"{name} is not in the code", offset)
    require(ENTRY in image.exports, f"there is no function {ENTRY}", list(image.exports))


def _check_slots(slots: Iterable[Any], start: int, end: int) -> None:
    seen: set[int] = set()
    for at in slots:
        require(
            is_size(at, end) and at >= start and at % _SLOT_BYTES == 0 and at not in seen,
            "a slot is misaligned, taken twice, or outside the part a loader may write",
            at,
        )
        seen.add(at)
