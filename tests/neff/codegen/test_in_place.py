"""Outputs in the place of inputs: which may be, and that they are right in both places."""

from __future__ import annotations

import numpy as np
import pytest

from neuron_compile.neff.codegen.dispatch import generate
from neuron_compile.neff.codegen.in_place import shareable, wanted_of_groups
from neuron_compile.neff.codegen.module import Program, read_program
from neuron_compile.neff.target import detect
from tests import oracle
from tests.neff.codegen.native import built

ROWS, WIDTH, UPDATES = 9000, 40, 7  # more than a thread copies alone

_SCATTER = """func.func private @{name}(%x: {x}{strides}, %i: tensor<7xi64>, %u: tensor<7x40xf32>)
    -> {result} attributes {{neuron.kind = "scatter"}} {{
  %r = "stablehlo.scatter"(%x, %i, {updates}) <{{scatter_dimension_numbers = #stablehlo.scatter<
      update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
      index_vector_dim = 1>}}> ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %m = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }}) : ({x}, tensor<7xi64>, tensor<7x40xf32>) -> {x}
  {rest}
}}
"""
X = f"tensor<{ROWS}x{WIDTH}xf32>"
ARGUMENTS = f"%x: {X}, %i: tensor<7xi64>, %u: tensor<7x40xf32>"
TYPES = f"({X}, tensor<7xi64>, tensor<7x40xf32>)"


def scatter(name: str = "s", *, updates: str = "%u", before: str = "", rest: str = "") -> str:
    text = _SCATTER.format(
        name=name, x=X, strides="", result=X, updates=updates, rest=rest or f"return %r : {X}"
    )
    return text.replace("  %r =", f"{before}  %r =")


def main(body: str, results: str = X) -> str:
    return f"func.func @main({ARGUMENTS}) -> ({results}) {{\n{body}\n}}\n"


CALL = f"%y = func.call @s(%x, %i, %u) : {TYPES} -> {X}"
READ = f"""func.func private @read(%a: {X}) -> tensor<{ROWS}x{WIDTH}xf32>
    attributes {{neuron.kind = "loop"}} {{
  %b = stablehlo.negate %a : {X}
  return %b : {X}
}}
"""
PROGRAMS = {
    "an update": (scatter() + main(f"{CALL}\nreturn %y : {X}"), ((0, 0),)),
    "the new value read later": (
        scatter() + READ + main(
            f"{CALL}\n%z = func.call @read(%y) : ({X}) -> {X}\nreturn %y, %z : {X}, {X}",
            f"{X}, {X}",
        ),
        ((0, 0),),
    ),
    "the old value read before": (
        scatter() + READ + main(
            f"%z = func.call @read(%x) : ({X}) -> {X}\n{CALL}\nreturn %y, %z : {X}, {X}",
            f"{X}, {X}",
        ),
        ((0, 0),),
    ),
    "the old value read later": (
        scatter() + READ + main(
            f"{CALL}\n%z = func.call @read(%x) : ({X}) -> {X}\nreturn %y, %z : {X}, {X}",
            f"{X}, {X}",
        ),
        (),
    ),
    "the old value read by the updates": (
        scatter(
            updates="%v",
            before=f"  %v = stablehlo.slice %x [0:7, 0:40] : ({X}) -> tensor<7x40xf32>\n",
        ) + main(f"{CALL}\nreturn %y : {X}"),
        (),
    ),
    "two updates one after the other": (
        scatter() + main(
            f"{CALL}\n%z = func.call @s(%y, %i, %u) : {TYPES} -> {X}\nreturn %z : {X}"
        ),
        (),
    ),
    "the old value returned as well": (
        scatter() + main(f"{CALL}\nreturn %y, %x : {X}, {X}", f"{X}, {X}"),
        (),
    ),
}  # fmt: skip


def shared(program: Program) -> tuple[tuple[int, int], ...]:
    """Whether the first output may lie where the first input does."""
    wanted = wanted_of_groups(program, [(0, 0)])
    kernels = {n: generate(g, detect(), wanted.get(n, ())) for n, g in program.groups.items()}
    return shareable(program, [(0, 0)], kernels)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_may_be_written_in_place(name: str) -> None:
    text, wanted = PROGRAMS[name]
    assert shared(read_program(oracle.parse(text))) == wanted


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("in_place", [False, True], ids=["apart", "in place"])
def test_both_places_give_the_same(name: str, in_place: bool) -> None:
    random = np.random.default_rng(0)
    x = random.integers(-9, 10, (ROWS, WIDTH)).astype(np.float32)
    i = np.array([3, 8999, 3, 0, 17, 9000, -1])  # twice the same row, and rows outside
    u = random.integers(-9, 10, (UPDATES, WIDTH)).astype(np.float32)
    text, pairs = PROGRAMS[name]
    executable = built(text, updates=[(0, 0)])
    plan = executable.neff.plan
    assert plan.in_place == pairs
    before = x.copy()
    inputs = [x, i, u]
    outputs = [np.full((ROWS, WIDTH), np.nan, np.float32) for _ in plan.outputs]
    for output, source in plan.in_place if in_place else ():
        outputs[output] = inputs[source]
    executable.run([a.ctypes.data for a in (*inputs, *outputs)])
    updated = _updated(before, i, before[:UPDATES] if "by the updates" in name else u)
    if "two updates" in name:
        updated = _updated(updated, i, u)
    np.testing.assert_array_equal(outputs[0], updated)
    if len(outputs) > 1:
        second = {
            "the new value read later": -updated,
            "the old value returned as well": before,
        }.get(name, -before)
        np.testing.assert_array_equal(outputs[1], second)
    if not (in_place and pairs):
        np.testing.assert_array_equal(x, before)


def _updated(x: np.ndarray, i: np.ndarray, u: np.ndarray) -> np.ndarray:
    y = x.copy()
    for row, values in zip(i, u, strict=True):
        if 0 <= row < len(y):
            y[row] += values
    return y
