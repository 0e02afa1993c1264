"""`runtime/trimmer.py`: everything is looked at, and the thread ends when nothing is left."""

import threading

from neuron_compile.runtime import trimmer
from neuron_compile.runtime.trimmer import Trimmer
from tests.runtime.waiting import wait_until


def test_the_thread_ends_with_the_last_piece_and_comes_again():
    left = [3]
    looked = []

    def trim() -> bool:
        looked.append(threading.current_thread())
        left[0] = max(0, left[0] - 1)
        return left[0] > 0

    subject = Trimmer(0.001, trim)
    subject.wake()
    wait_until(lambda: subject._thread is None)
    assert left == [0]
    first = looked[0]
    left[0] = 2
    subject.wake()
    wait_until(lambda: left == [0])
    assert looked[-1] is not first


def test_nothing_is_forgotten_whenever_it_comes():
    """Pieces come while the thread is about to end."""
    pieces: list[int] = []

    def trim() -> bool:
        pieces.clear()
        return False

    subject = Trimmer(0, trim)
    for number in range(3000):
        pieces.append(number)
        subject.wake()
    wait_until(lambda: not pieces)


def test_no_thread_to_be_had_is_no_error(monkeypatch):
    class Refused(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    calls = []
    subject = Trimmer(0.001, lambda: bool(calls.append(1)))
    with monkeypatch.context() as patched:
        patched.setattr(trimmer.threading, "Thread", Refused)
        subject.wake()
    assert not calls
    subject.wake()
    wait_until(lambda: bool(calls))
