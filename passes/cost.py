"""The numbers every pass decides by: bytes moved, recompute cost, room for parallel work.

In: shapes, dtypes and op names. Out: comparisons of costs. Invariant: one model for all passes; it
compares bytes, with instructions and kernel launches converted into bytes.
"""

from __future__ import annotations

# A kernel costs about 1 us of launch and barrier (measured: a parallel region 0.6-1.3 us); a core
# streams about 10 GB/s, so a launch is worth this many bytes.
LAUNCH_BYTES = 8192

# Recomputing at most this many instructions per element is cheaper than a round trip through memory
# (4 bytes read and 4 written at 10 GB/s against 16 lanes at 2 instructions per cycle).
CHEAP_COST = 4

# Mask arithmetic on iota and constants that is repeated in each consumer.
MASK_COST = 16

# A value this many times larger than its source is cheaper spread again than read.
SPREAD = 8

# A contraction re-reads its operands per tile: a prologue must be nearly free.
PROLOGUE_COST = 2

# A window reads each input several times: window elements / stride elements times the cost.
WINDOW_COST = 24

# Below this many elements parallelism does not matter, the launch does.
SMALL_NUMEL = 1 << 15

# A group is one kernel: bounded so that its code stays small and its pointers few.
MAX_NODES = 200
MAX_PORTS = 64


# Independent pieces of a long reduction, and rows of a fused one, that keep the cores busy and even
# out their speeds. Not the cores of this machine: their number is in no key, a NEFF runs on any.
PIECES = 8
FEWEST_ROWS = 4


def enough_rows(rows: int, numel: int) -> bool:
    """Whether `rows` independent rows keep the cores busy over `numel` elements."""
    return numel < SMALL_NUMEL or rows >= FEWEST_ROWS
