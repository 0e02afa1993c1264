"""The harness itself: it refuses wrong results, alternates, and writes a complete record."""

from __future__ import annotations

import itertools
import json

import pytest
import torch

from benchmarks import competitors, record, runner
from benchmarks.case import Case, Work, forward


def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.fixture
def _stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Competitors that need no compiler: these tests are about the harness."""
    stand_ins = {name: (lambda function: function) for name in ("eager", "neuron", "inductor")}
    monkeypatch.setattr(competitors, "compilers", lambda: stand_ins)


@pytest.mark.usefixtures("_stand_ins")
def test_a_case_is_measured_and_recorded() -> None:
    case = Case("twice", lambda: forward(twice, torch.ones(3)))
    measured = runner.measure(case, seconds=0.02)
    assert set(measured.timing) == {"eager", "neuron", "inductor"}
    samples = {timing.samples for timing in measured.timing.values()}
    assert len(samples) == 1
    assert samples.pop() >= runner.ROUNDS[0]
    assert measured.difference == {"neuron": 0.0, "inductor": 0.0}
    assert measured.ratio("eager") > 0
    content = json.loads(json.dumps(record.record([measured], [], None)))
    assert content["cases"][0]["name"] == "twice"
    assert content["versions"]["torch"] == torch.__version__
    assert content["machine"]["threads"] == torch.get_num_threads()


def test_a_wrong_result_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"eager": lambda f: f, "neuron": lambda f: lambda x: f(x) + 1}
    monkeypatch.setattr(competitors, "compilers", lambda: wrong)
    case = Case("twice", lambda: forward(twice, torch.ones(3)))
    with pytest.raises(runner.DisagreementError, match=r"neuron differs from eager by 5\.0e-01"):
        runner.measure(case, seconds=0.01)


@pytest.mark.usefixtures("_stand_ins")
def test_nan_is_a_wrong_result() -> None:
    def build(compiler) -> Work:
        value = 1.0 if compiler is competitors.compilers()["eager"] else float("nan")
        return Work(lambda: None, lambda: (torch.tensor([value]),))

    with pytest.raises(runner.DisagreementError):
        runner.measure(Case("nan", lambda: build), seconds=0.01)


def test_competitors_alternate() -> None:
    order: list[str] = []
    runs = {name: (lambda name=name: order.append(name)) for name in ("eager", "b", "c")}
    runner.interleaved(runs, seconds=0.0)
    changes = sum(a != b for a, b in itertools.pairwise(order))
    assert changes >= 3 * runner.ROUNDS[0] - 1 + 2
