"""Waiting for what another thread does."""

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], bool], seconds: float = 30) -> None:
    """Return as soon as it holds; an AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)
