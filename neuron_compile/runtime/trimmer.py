"""A thread that gives idle memory back, and lives only as long as there is some.

In: how often, and what to call. Out: calls of `trim` until it says that nothing is left. Invariant:
whoever adds memory and then calls `wake` has it looked at, whatever the thread does meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# Memory nobody used for so long goes back to the operating system.
IDLE_SECONDS = 5.0


class Trimmer:
    """Calls `trim` every `seconds`; it returns whether there is anything left to look at."""

    def __init__(self, seconds: float, trim: Callable[[], bool]) -> None:
        self._seconds = seconds
        self._trim = trim
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Have the thread running. Costs next to nothing where it does."""
        if self._thread is None:
            self._start()

    def forget(self) -> None:
        """For a forked child: it has no such thread, and perhaps a lock that was held."""
        self._lock = threading.Lock()
        self._thread = None

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name="neuron-compile-trimmer", daemon=True)
            self._thread = thread
            try:
                thread.start()
            except RuntimeError:  # no room for a thread, or the interpreter ends: memory stays
                self._thread = None

    def _run(self) -> None:
        while True:
            time.sleep(self._seconds)
            if not self._trim():
                break
        self._thread = None
        # Who added something until just now may have taken this thread for a running one.
        if self._trim():
            self.wake()
