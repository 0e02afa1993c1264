"""The record of one generated kernel, shared by all kinds of groups."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function `@name(ptrs, begin, end)` over `tasks` independent tasks.

    `ptrs` points to the group's parameters, then its results, then `scratch` buffers of so many
    bytes. `work` estimates the whole kernel in nanoseconds on one core: short kernels run without
    other threads. A thread calls it for at least `grain` tasks at a time: as many as repay what
    each call prepares.

    `copies`: the pointers (from, to) of a kernel that only copies one buffer to another; it is left
    out of a run in which both are the same memory. `overwrites`: pairs (from, to) of pointers that
    may be the same memory, because each element of the one is read before the other's is stored.
    """

    name: str
    text: str
    tasks: int
    work: float
    scratch: tuple[int, ...] = ()
    externals: tuple[str, ...] = ()
    grain: int = 1
    copies: tuple[int, int] | None = None
    overwrites: tuple[tuple[int, int], ...] = ()
