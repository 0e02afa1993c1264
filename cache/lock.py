"""A lock that saves processes from compiling the same thing at once, and does nothing else.

In: a path, a time limit and a way to see that another process has published. Out: how the wait
ended. Invariant: correctness never rests on it (entries are published atomically), so every failure
of the lock means "go on without", and a holder that dies, hangs or is forked blocks nobody longer
than the time limit.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path

from filelock import FileLock, Timeout

from neuron_compile.cache.warn_once import warn_once, was_said

# Waiting starts brisk, for small graphs compile in some 50 ms, and slows down for the sake of
# network file systems, where each look is a request to the server.
_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.05
_PAUSE_GROWTH = 1.5


_inherited: list[FileLock] = []


class LockState(Enum):
    """How the wait for a lock ended."""

    HELD = "held"  # we have it: look once more, then compile
    PUBLISHED = "published"  # another process published the entry while we waited
    TIMED_OUT = "timed out"  # the holder is slow or hangs: compile without the lock
    UNAVAILABLE = "unavailable"  # no lock can be had here (read-only, no flock): compile without


@contextlib.contextmanager
def hold(
    path: Path, *, timeout: float, published: Callable[[], bool], excuse: str = ""
) -> Iterator[LockState]:
    """Wait up to `timeout` seconds (`math.inf`: without limit) for the lock at `path`.

    While waiting, `published` is asked at each turn; when it says yes the wait ends without the
    lock, so that a hundred waiting processes need not take it one after the other.

    That no lock can be had is said at the end, and only if by then `warn_once` has said nothing on
    the topic `excuse`: where nothing can be stored, a missing lock is no news.
    """
    troubles: list[Exception] = []
    lock = _make(path, troubles)
    state = (
        LockState.UNAVAILABLE if lock is None else _wait(lock, path, timeout, published, troubles)
    )
    owner = os.getpid()
    try:
        yield state
    finally:
        if lock is not None and state is LockState.HELD:
            if os.getpid() == owner:
                _release(lock, path)
            else:
                # A child that was forked in here must not free its parent's lock; older versions of
                # filelock do so when the object goes away.
                _inherited.append(lock)
        if troubles and not was_said(excuse):
            _warn_unavailable(path, troubles[0])


def _make(path: Path, troubles: list[Exception]) -> FileLock | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(path)
    except OSError as error:
        troubles.append(error)
        return None


def _wait(
    lock: FileLock,
    path: Path,
    timeout: float,
    published: Callable[[], bool],
    troubles: list[Exception],
) -> LockState:
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while True:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            pass
        except (OSError, NotImplementedError, UserWarning) as error:
            # NotImplementedError: a file system without flock, older filelock. UserWarning: newer
            # filelock says the same with a warning, which is an exception under `-W error`.
            troubles.append(error)
            return LockState.UNAVAILABLE
        else:
            return LockState.HELD
        if published():
            return LockState.PUBLISHED
        left = deadline - time.monotonic()
        if left <= 0:
            warn_once(
                f"lock-timeout:{path}",
                f"another process has held {path} for more than {timeout:g} s; compiling without "
                "waiting for it (TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT sets the limit)",
            )
            return LockState.TIMED_OUT
        time.sleep(min(pause, left))
        pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE)


def _release(lock: FileLock, path: Path) -> None:
    # Unlinked while held, so that lock files do not pile up. A process that opened the old file in
    # this instant may hold it beside one that made a new file: at worst the two compile the same
    # thing.
    with contextlib.suppress(OSError):
        path.unlink()
    with contextlib.suppress(OSError):
        lock.release()


def _warn_unavailable(path: Path, error: Exception) -> None:
    warn_once(
        "lock-unavailable",
        "no lock for compiling: processes that start together may compile the same graph\n"
        f"  where: {path.parent}\n"
        f"  why: {(isinstance(error, OSError) and error.strerror) or error}\n"
        "  what to do: let TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR name a directory on a local disk",
    )
