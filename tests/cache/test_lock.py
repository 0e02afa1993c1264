"""The lock: one holder at a time, and every failure of it means going on without."""

from __future__ import annotations

import math
import threading
import time

import pytest
from filelock import FileLock

from neuron_compile.cache import lock
from neuron_compile.cache.lock import LockState, hold
from neuron_compile.cache.warn_once import warn_once


def never() -> bool:
    return False


def test_two_threads_do_not_hold_it_at_once(tmp_path):
    inside, most, states = [0], [0], []

    def work() -> None:
        with hold(tmp_path / "a.lock", timeout=math.inf, published=never) as state:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.02)
            inside[0] -= 1
            states.append(state)

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert states == [LockState.HELD] * 5
    assert most == [1]
    assert list(tmp_path.iterdir()) == []


def test_a_waiter_stops_waiting_when_the_entry_appears(tmp_path):
    looks = []

    def published() -> bool:
        looks.append(None)
        return len(looks) == 3

    with (
        hold(tmp_path / "a.lock", timeout=30, published=never) as holder,
        hold(tmp_path / "a.lock", timeout=30, published=published) as waiter,
    ):
        assert (holder, waiter) == (LockState.HELD, LockState.PUBLISHED)


@pytest.mark.parametrize("timeout", [0.0, 0.1])
def test_the_time_limit_holds_and_is_said_once(tmp_path, caplog, timeout):
    with hold(tmp_path / "a.lock", timeout=30, published=never):
        for _ in range(2):
            began = time.monotonic()
            with hold(tmp_path / "a.lock", timeout=timeout, published=never) as state:
                assert state is LockState.TIMED_OUT
            assert time.monotonic() - began < timeout + 1
    assert len(caplog.records) == 1


def test_it_is_free_again_after_an_exception(tmp_path):
    with (
        pytest.raises(ZeroDivisionError),
        hold(tmp_path / "a.lock", timeout=1, published=never),
    ):
        raise ZeroDivisionError
    with hold(tmp_path / "a.lock", timeout=0, published=never) as state:
        assert state is LockState.HELD


def test_a_lock_file_that_somebody_left_is_no_lock(tmp_path):
    (tmp_path / "a.lock").write_text("12345\nanother-host\n")
    with hold(tmp_path / "a.lock", timeout=0, published=never) as state:
        assert state is LockState.HELD


@pytest.mark.parametrize(
    "error",
    [
        NotImplementedError("no flock"),
        UserWarning("flock not supported on this filesystem"),
        PermissionError(13, "denied"),
        OSError(37, "No locks available"),
    ],
)
def test_where_no_lock_can_be_had_work_goes_on(tmp_path, monkeypatch, caplog, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(lock.FileLock, "acquire", fail)
    for _ in range(2):
        with hold(tmp_path / "a.lock", timeout=5, published=never) as state:
            assert state is LockState.UNAVAILABLE
    assert len(caplog.records) == 1


def test_a_lock_directory_that_cannot_be_made_is_no_error(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with hold(tmp_path / "file" / "a.lock", timeout=5, published=never) as state:
        assert state is LockState.UNAVAILABLE
    assert len(caplog.records) == 1


def test_where_nothing_can_be_stored_a_missing_lock_is_no_news(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with hold(tmp_path / "file" / "a.lock", timeout=5, published=never, excuse="cache") as state:
        assert state is LockState.UNAVAILABLE
        warn_once("cache", "nothing can be stored")
    assert [record.getMessage() for record in caplog.records] == ["nothing can be stored"]


def test_it_works_beside_filelock_itself(tmp_path):
    """The file is a plain `filelock`: other tools can wait for a compile with it."""
    with (
        FileLock(tmp_path / "a.lock"),
        hold(tmp_path / "a.lock", timeout=0, published=never) as state,
    ):
        assert state is LockState.TIMED_OUT
