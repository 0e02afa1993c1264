"""`runtime/executable.py`: raw calls, many threads, and refusal of another CPU's code."""

import dataclasses
import threading

import numpy as np
import pytest

from neuron_compile.errors import NeffTargetError
from neuron_compile.neff import target as target_module
from neuron_compile.neff.reader import read
from neuron_compile.neff.target import make
from neuron_compile.neff.writer import write
from neuron_compile.runtime.executable import Executable
from tests.runtime.programs import scale


def addresses(*arrays):
    return [array.ctypes.data for array in arrays]


def test_it_runs_on_raw_addresses():
    executable = Executable(read(write(scale())))
    x, y = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)
    for _ in range(3):
        executable.run(addresses(x, y))
    np.testing.assert_array_equal(y, x * 2 + 3)
    assert executable.neff.plan == scale().plan


def test_a_record_that_never_was_a_file_runs_too():
    x, y = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)
    Executable(scale()).run(addresses(x, y))
    np.testing.assert_array_equal(y, x * 2 + 3)


def test_a_wrong_number_of_addresses_is_refused():
    executable = Executable(scale())
    with pytest.raises(ValueError, match="size"):
        executable.run([0])
    x, y = np.ones(1000, np.float32), np.zeros(1000, np.float32)
    executable.run(addresses(x, y))
    assert y[0] == 5


def test_threads_do_not_share_arenas_or_tables():
    """Each call copies its input to the arena and reads it back: shared arenas would mix them."""
    count = 200_000
    first = Executable(read(write(scale(count))))
    second = Executable(read(write(scale(count, 5.0))))
    wrong = []

    def work(number: int) -> None:
        x, y = np.full(count, number, np.float32), np.empty(count, np.float32)
        for turn in range(12):
            executable, factor = ((first, 2), (second, 5))[turn % 2]
            executable.run(addresses(x, y))
            if not (y == number * factor + 3).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_neff_can_be_loaded_again_while_it_runs():
    neff = read(write(scale(200_000)))
    first = Executable(neff)
    x, y = np.ones(200_000, np.float32), np.zeros(200_000, np.float32)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            first.run(addresses(x, y))

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(200):
        Executable(neff)
    stop.set()
    thread.join()
    assert (y == 5).all()


def test_code_for_another_cpu_says_what_why_and_what_to_do(monkeypatch):
    foreign = dataclasses.replace(scale(), target=make("x86-64-v4", ["amx_tile"]))
    flags = target_module._V3_FLAGS
    monkeypatch.setattr(target_module, "_host", lambda: ("x86_64", frozenset(flags)))
    with pytest.raises(NeffTargetError) as caught:
        Executable(foreign)
    message = str(caught.value)
    assert "x86-64-v4+amx_tile" in message
    assert "avx512f" in message
    assert "amx_tile" in caught.value.why
    assert "x86-64-v3" in caught.value.remedy
