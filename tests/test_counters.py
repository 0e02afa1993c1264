"""Counters and stage times."""

from __future__ import annotations

import time

import pytest

import neuron_compile
from neuron_compile import counters


@pytest.fixture(autouse=True)
def _zero() -> None:
    counters.reset_stats()


def test_public_names_are_the_counters() -> None:
    assert neuron_compile.stats is counters.stats
    assert neuron_compile.reset_stats is counters.reset_stats


def test_events_add_up_and_reset() -> None:
    counters.add("compiles")
    counters.add("kernels", 3)
    found = counters.stats()
    assert (found["compiles"], found["kernels"]) == (1, 3)
    counters.reset_stats()
    assert counters.stats()["kernels"] == 0


def test_unknown_event_is_a_defect() -> None:
    with pytest.raises(KeyError):
        counters.add("typo")


def test_launches_count_kernels_of_each_call() -> None:
    calls = counters.calls(launches_per_call=5)
    first, second = calls.new_cell(), calls.new_cell()
    first[0] += 2
    second[0] += 1
    assert counters.stats()["launches"] == 15
    counters.reset_stats()
    assert counters.stats()["launches"] == 0
    first[0] += 1
    assert counters.stats()["launches"] == 5


def test_time_of_an_inner_stage_is_not_counted_twice() -> None:
    with counters.timed("cache"):
        time.sleep(0.01)
        with counters.timed("build"):
            time.sleep(0.05)
    seconds = counters.stats()["seconds"]
    assert seconds["build"] >= 0.05
    assert 0.01 <= seconds["cache"] < 0.05


def test_time_is_counted_when_the_stage_fails() -> None:
    with pytest.raises(ValueError, match="x"), counters.timed("lower"):
        raise ValueError("x")
    assert counters.stats()["seconds"]["lower"] > 0


def test_the_result_is_a_snapshot() -> None:
    found = counters.stats()
    counters.add("graphs")
    assert found["graphs"] == 0
