"""The judge of the benchmarks: it sees a missed threshold and names it."""

from __future__ import annotations

import pytest

from benchmarks import thresholds
from benchmarks.cases import CASES
from benchmarks.overhead import DYNAMO, Overhead
from benchmarks.runner import FirstCall, Measured, Timing
from benchmarks.startup import Startup

LIMITS = {
    "default": {"eager": 0.98, "compile": 5.0},
    "fast": {"inductor": 1.2},
    "absolute": {"load_milliseconds_per_file": 5.0, "shim_microseconds": 15.0},
}


def measured(name: str, **milliseconds: float) -> Measured:
    timing = {k: Timing(v * 1e-3, v * 1e-3, v * 1e-3, 5) for k, v in milliseconds.items()}
    first = {"neuron": FirstCall(1.0, 0.1), "inductor": FirstCall(5.0, 1.0)}
    return Measured(name, timing, first, {}, {}, 1, 1)


@pytest.mark.parametrize(
    ("name", "times", "missed"),
    [
        ("any", {"neuron": 1.0, "eager": 1.0, "inductor": 0.5}, []),
        ("any", {"neuron": 1.03, "eager": 1.0}, ["any: 0.97x against eager, wanted 0.98x"]),
        ("fast", {"neuron": 1.0, "eager": 2.0, "inductor": 1.3}, []),
        (
            "fast",
            {"neuron": 1.0, "eager": 2.0, "inductor": 1.1},
            ["fast: 1.10x against inductor, wanted 1.20x"],
        ),
        ("fast", {"neuron": 1.0, "eager": 2.0}, []),  # no C++ compiler: nothing to compare with
    ],
)
def test_ratios(name: str, times: dict[str, float], missed: list[str]) -> None:
    assert thresholds.misses(LIMITS, [measured(name, **times)]) == missed


def test_compile_time() -> None:
    case = measured("any", neuron=1.0, eager=1.0)
    case.first["neuron"] = FirstCall(1.0, 0.4)
    assert thresholds.misses(LIMITS, [case]) == ["any: 2.50x against compile, wanted 5.00x"]


def test_absolute_limits() -> None:
    fine = Startup("a", "neuron", 9, 1, 0.1, load=0.009, files=2)
    slow = Startup("b", "neuron", 9, 1, 0.1, load=0.011, files=2)
    timing = {"neuron": Timing(40e-6, 0, 0, 5), DYNAMO: Timing(20e-6, 0, 0, 5)}
    assert thresholds.misses(LIMITS, [], [fine, slow], Overhead(timing)) == [
        "b: a disk hit takes 5.5 ms per file",
        "the shim adds 20.0 us per call",
    ]


def test_the_file_names_only_cases_that_exist() -> None:
    limits = thresholds.load()
    assert set(limits) - {"default", "absolute"} <= set(CASES)
    for case, wanted in limits.items():
        if case != "absolute":
            assert set(wanted) <= {"eager", "inductor", "compile"}
