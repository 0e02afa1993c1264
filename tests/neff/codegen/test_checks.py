"""Outputs that end the run where they are false: computed first, and nothing is written after."""

from __future__ import annotations

import numpy as np
import pytest

from neuron_compile.neff.codegen.checks import checks_first
from neuron_compile.neff.codegen.module import read_program
from tests import oracle
from tests.neff.codegen.native import built
from tests.neff.codegen.test_in_place import CALL, UPDATES, WIDTH, X, main, scatter, shared

FITS = f"""func.func private @fits(%i: tensor<{UPDATES}xi64>) -> tensor<i1>
    attributes {{neuron.kind = "loop"}} {{
  %n = stablehlo.constant dense<9000> : tensor<{UPDATES}xi64>
  %true = stablehlo.constant dense<true> : tensor<i1>
  %c = stablehlo.compare LT, %i, %n
      : (tensor<{UPDATES}xi64>, tensor<{UPDATES}xi64>) -> tensor<{UPDATES}xi1>
  %r = stablehlo.reduce(%c init: %true) applies stablehlo.and across dimensions = [0]
      : (tensor<{UPDATES}xi1>, tensor<i1>) -> tensor<i1>
  return %r : tensor<i1>
}}
"""
CHECK = f"%ok = func.call @fits(%i) : (tensor<{UPDATES}xi64>) -> tensor<i1>"
RESULTS = f"{X}, tensor<i1>"
CHECKED = scatter() + FITS + main(f"{CALL}\n{CHECK}\nreturn %y, %ok : {RESULTS}", RESULTS)
OF_THE_RESULT = f"""func.func private @small(%a: {X}) -> tensor<i1>
    attributes {{neuron.kind = "loop"}} {{
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%a init: %z) applies stablehlo.maximum across dimensions = [0, 1]
      : ({X}, tensor<f32>) -> tensor<f32>
  %n = stablehlo.constant dense<100.0> : tensor<f32>
  %r = stablehlo.compare LT, %s, %n : (tensor<f32>, tensor<f32>) -> tensor<i1>
  return %r : tensor<i1>
}}
"""
LATE_CHECK = f"%ok = func.call @small(%y) : ({X}) -> tensor<i1>"
LATE = (
    scatter() + OF_THE_RESULT + main(f"{CALL}\n{LATE_CHECK}\nreturn %y, %ok : {RESULTS}", RESULTS)
)


def test_checks_come_first_and_what_follows_may_be_written_in_place() -> None:
    program = read_program(oracle.parse(CHECKED))
    assert [c.group for c in program.calls] == ["s", "fits"]
    program = checks_first(program, 1)
    assert [c.group for c in program.calls] == ["fits", "s"]
    assert shared(program) == ((0, 0),)


def test_what_a_check_looks_at_is_not_written_in_place() -> None:
    program = read_program(oracle.parse(LATE))
    assert shared(program) == ((0, 0),)
    program = checks_first(program, 1)
    assert [c.group for c in program.calls] == ["s", "small"]
    assert shared(program) == ()


@pytest.mark.parametrize("holds", [True, False])
def test_a_run_ends_where_a_check_is_false(holds: bool) -> None:
    executable = built(CHECKED, checks=["too large"], updates=[(0, 0)])
    assert executable.neff.plan.checks == ("too large",)
    assert executable.neff.plan.in_place == ((0, 0),)
    x = np.zeros((9000, WIDTH), np.float32)
    i = np.array([3, 8999, 4, 0, 17, 8 if holds else 9000, 5])
    u = np.ones((UPDATES, WIDTH), np.float32)
    assert len(executable.neff.plan.outputs) == 1
    assert executable.run([a.ctypes.data for a in (x, i, u, x)]) == (0 if holds else 1)
    assert x.sum() == (UPDATES * WIDTH if holds else 0)
