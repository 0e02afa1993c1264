"""Where every buffer of a run lies: intermediates and kernel scratch share one arena by liveness.

In: the program and the scratch sizes of its calls. Out: a `MemoryPlan`. Two buffers overlap only
if no call needs both. Offsets are multiples of a cache line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neuron_compile.neff.codegen.module import Program
from neuron_compile.neff.codegen.program import Tensor
from neuron_compile.neff.codegen.value import bytes_of

ALIGNMENT = 64  # bytes: a cache line and the longest vector


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Byte offsets in the arena: per intermediate value, and per call and scratch buffer."""

    size: int
    values: dict[int, int]
    scratch: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class _Request:
    """A buffer of `size` bytes alive during calls `first` to `last`."""

    size: int
    first: int
    last: int


def tensor_bytes(tensor: Tensor) -> int:
    """Bytes from the first to the last element."""
    if tensor.size == 0:
        return 0
    span = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True)) + 1
    return span * bytes_of(tensor.signless)


def plan_memory(program: Program, scratch: Sequence[Sequence[int]]) -> MemoryPlan:
    """First fit in order of decreasing size, which is within a few percent of optimal for such
    graphs.
    """
    elsewhere = {*program.outputs, *program.checks}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for time, call in enumerate(program.calls):
        for value in call.results:
            first[value] = last[value] = time
        for value in call.operands:
            last[value] = time
    keys: list[tuple[int, int]] = []  # (value, -1) or (call, scratch number)
    requests: list[_Request] = []
    for value, time in first.items():
        if value not in elsewhere:
            keys.append((value, -1))
            requests.append(_Request(tensor_bytes(program.tensors[value]), time, last[value]))
    for time, sizes in enumerate(scratch):
        for number, size in enumerate(sizes):
            keys.append((time, number))
            requests.append(_Request(size, time, time))
    offsets, total = _pack(requests)
    values = {v: offsets[i] for i, (v, n) in enumerate(keys) if n < 0}
    places = [[0] * len(sizes) for sizes in scratch]
    for i, (time, number) in enumerate(keys):
        if number >= 0:
            places[time][number] = offsets[i]
    return MemoryPlan(total, values, tuple(tuple(p) for p in places))


def _pack(requests: Sequence[_Request]) -> tuple[list[int], int]:
    offsets = [0] * len(requests)
    placed: list[int] = []
    total = 0
    for i in sorted(range(len(requests)), key=lambda k: (-requests[k].size, k)):
        mine = requests[i]
        size = -(-mine.size // ALIGNMENT) * ALIGNMENT
        alive = sorted(
            (offsets[j], offsets[j] + -(-requests[j].size // ALIGNMENT) * ALIGNMENT)
            for j in placed
            if requests[j].first <= mine.last and mine.first <= requests[j].last
        )
        at = 0
        for low, high in alive:
            if at + size <= low:
                break
            at = max(at, high)
        offsets[i] = at
        total = max(total, at + size)
        placed.append(i)
    return offsets, total
