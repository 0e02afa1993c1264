"""Counters of this process: what was compiled, found, launched, and how long each stage took.

In: events from the front door, and one cell per concurrent caller of each executable. Out:
`stats()`. Invariant: counting costs the call path one integer addition and no lock.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

# Names of stats() that count events; `launches` and `seconds` are added to them.
EVENTS = (
    "graphs",
    "compiles",
    "memory_hits",
    "disk_hits",
    "disk_misses",
    "bypasses",
    "fallback_ops",
    "kernels",
)
STAGES = ("key", "cache", "lower", "passes", "build", "load")


class Calls:
    """How often one executable ran. Each frame that may run it at the same time as others owns a
    cell.
    """

    __slots__ = ("cells", "launches_per_call")

    def __init__(self, launches_per_call: int) -> None:
        self.launches_per_call = launches_per_call
        self.cells: list[list[int]] = []

    def new_cell(self) -> list[int]:
        """A one-element list; its owner adds 1 to it per call, and nobody else writes to it."""
        cell = [0]
        self.cells.append(cell)
        return cell


class _Counters:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events = dict.fromkeys(EVENTS, 0)
        self._seconds = dict.fromkeys(STAGES, 0.0)
        self._calls: list[Calls] = []
        self._inner = threading.local()  # seconds that stages inside the current one took

    def add(self, event: str, amount: int = 1) -> None:
        with self._lock:
            self._events[event] += amount

    def calls(self, launches_per_call: int) -> Calls:
        calls = Calls(launches_per_call)
        with self._lock:
            self._calls.append(calls)
        return calls

    @contextlib.contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time of the block to `stage`, less what stages inside it took."""
        start = time.perf_counter()
        outer, self._inner.seconds = getattr(self._inner, "seconds", 0.0), 0.0
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            with self._lock:
                self._seconds[stage] += elapsed - self._inner.seconds
            self._inner.seconds = outer + elapsed

    def snapshot(self) -> dict[str, Any]:
        with self._lock:
            launches = sum(
                calls.launches_per_call * sum(cell[0] for cell in calls.cells)
                for calls in self._calls
            )
            return {**self._events, "launches": launches, "seconds": dict(self._seconds)}

    def reset(self) -> None:
        with self._lock:
            self._events = dict.fromkeys(EVENTS, 0)
            self._seconds = dict.fromkeys(STAGES, 0.0)
            for calls in self._calls:
                for cell in calls.cells:
                    cell[0] = 0


_COUNTERS = _Counters()

add = _COUNTERS.add
calls = _COUNTERS.calls
timed = _COUNTERS.timed


def stats() -> dict[str, Any]:
    """Counters since the start of the process or the last `reset_stats()`.

    `graphs` handed over by AOTAutograd (each shape of a dynamic one counts), `compiles` run to the
    end, `memory_hits`, `disk_hits`, `disk_misses` and `bypasses` of the cache, `fallback_ops` run
    in eager PyTorch, `kernels` in the executables loaded, `launches` of kernels, and `seconds` per
    stage.
    """
    return _COUNTERS.snapshot()


def reset_stats() -> None:
    """Set every counter to zero. Calls that run in other threads at this moment may be lost or
    kept.
    """
    _COUNTERS.reset()
