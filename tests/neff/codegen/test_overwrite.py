"""Loops that may store a result over a parameter: only where they read it at the same place."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from neuron_compile.neff.codegen.dispatch import generate
from neuron_compile.neff.codegen.module import read_program
from neuron_compile.neff.target import detect
from tests import oracle
from tests.neff.codegen.guarded import guarded
from tests.neff.codegen.large_results import every_result_large
from tests.neff.codegen.native import built, outlined, plain

EXAMPLES = int(os.environ.get("NEURON_TEST_EXAMPLES", "40"))
ARGUMENTS = ("%a", "%b", "%c")
Pairs = tuple[tuple[int, int], ...]  # (output, input)


def group(lines: list[str], results: list[str], extent: int) -> str:
    """A group over three square arguments."""
    t = f"tensor<{extent}x{extent}xf32>"
    arguments = ", ".join(f"{name}: {t}" for name in ARGUMENTS)
    types = ", ".join([t] * len(results))
    body = "\n".join(f"  {line}" for line in lines)
    return f"({arguments}) -> ({types}) {{\n{body}\n  return {', '.join(results)} : {types}\n}}\n"


def step(kind: str, name: str, x: str, y: str, n: int) -> list[str]:
    """Lines that compute `name` of `x` and `y`; integers stay integers."""
    t, r = f"tensor<{n}x{n}xf32>", f"tensor<{n}xf32>"
    zero = f"{name}z = stablehlo.constant dense<0.0> : tensor<f32>"
    shorter = f"tensor<{n}x{n - 1}xf32>"
    padding = "low = [0, 0], high = [0, 1], interior = [0, 0]"
    ahead = "low = [0, 1], high = [0, 0], interior = [0, 0]"
    sizes = f"sizes = [{n}, {n - 1}] : ({t}, tensor<i64>, tensor<i64>)"
    greatest = "applies stablehlo.maximum across dimensions = [1]"
    return {
        "negate": [f"{name} = stablehlo.negate {x} : {t}"],
        "subtract": [f"{name} = stablehlo.subtract {x}, {y} : {t}"],
        "maximum": [f"{name} = stablehlo.maximum {x}, {y} : {t}"],
        "transpose": [f"{name} = stablehlo.transpose {x}, dims = [1, 0] : ({t}) -> {t}"],
        "reverse": [f"{name} = stablehlo.reverse {x}, dims = [1] : {t}"],
        "shift": [
            zero,
            f"{name}s = stablehlo.slice {x} [0:{n}, 1:{n}] : ({t}) -> {shorter}",
            f"{name} = stablehlo.pad {name}s, {name}z, {padding} : ({shorter}, tensor<f32>) -> {t}",
        ],
        "shift back": [
            zero,
            f"{name}s = stablehlo.slice {x} [0:{n}, 0:{n - 1}] : ({t}) -> {shorter}",
            f"{name} = stablehlo.pad {name}s, {name}z, {ahead} : ({shorter}, tensor<f32>) -> {t}",
        ],
        "dynamic slice": [
            f"{name}c = stablehlo.constant dense<1> : tensor<i64>",
            f"{name}o = stablehlo.constant dense<0> : tensor<i64>",
            f"{name}s = stablehlo.dynamic_slice {x}, {name}o, {name}c, {sizes} -> {shorter}",
            zero,
            f"{name} = stablehlo.pad {name}s, {name}z, {padding} : ({shorter}, tensor<f32>) -> {t}",
        ],
        "greatest of the row": [
            zero,
            f"{name}r = stablehlo.reduce({x} init: {name}z) {greatest} : ({t}, tensor<f32>) -> {r}",
            f"{name} = stablehlo.broadcast_in_dim {name}r, dims = [0] : ({r}) -> {t}",
        ],
        "first row": [
            f"{name}s = stablehlo.slice {x} [0:1, 0:{n}] : ({t}) -> tensor<1x{n}xf32>",
            f"{name}d = stablehlo.reshape {name}s : (tensor<1x{n}xf32>) -> {r}",
            f"{name} = stablehlo.broadcast_in_dim {name}d, dims = [1] : ({r}) -> {t}",
        ],
    }[kind]


READ_ELSEWHERE = ("transpose", "reverse", "shift", "shift back", "dynamic slice",
                  "greatest of the row", "first row")  # fmt: skip
KINDS = ("negate", "subtract", "subtract", "maximum", *READ_ELSEWHERE)


@st.composite
def groups(draw: st.DrawFn) -> tuple[str, int, Pairs]:
    n = draw(st.sampled_from([2, 5, 16, 33, 64]))
    names, lines = list(ARGUMENTS), []
    for number in range(draw(st.integers(1, 7))):
        kind, name = draw(st.sampled_from(KINDS)), f"%v{number}"
        lines += step(kind, name, draw(st.sampled_from(names)), draw(st.sampled_from(names)), n)
        names.append(name)
    made = names[len(ARGUMENTS) :]
    results = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
    places = draw(st.permutations(range(len(ARGUMENTS))))
    return group(lines, results, n), n, tuple(enumerate(places[: len(results)]))


def in_place_is_right(body: str, n: int, wanted: Pairs, target: str = "native") -> Pairs:
    """With the allowed ones of the wanted pairs, results are the interpreter's; returns those."""
    executable = built(outlined(body), detect(target), updates=wanted)
    plan = executable.neff.plan
    random = np.random.default_rng(0)
    arrays = [random.integers(-9, 10, (n, n)).astype(np.float32) for _ in ARGUMENTS]
    want = oracle.evaluate(oracle.parse(plain(body)), arrays)
    for pairs in ((), plan.in_place):
        with guarded(at_end=True) as memory:
            inputs = [memory.copy(a) for a in arrays]
            outputs = [memory.buffer(4 * n * n) for _ in plan.outputs]
            for output, source in pairs:
                outputs[output] = inputs[source]
            executable.run([a.ctypes.data for a in (*inputs, *outputs)])
            for got, right in zip(outputs, want, strict=True):
                np.testing.assert_array_equal(got.view(np.float32).reshape(n, n), right)
    return plan.in_place


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@settings(max_examples=EXAMPLES, deadline=None)
@given(drawn=groups())
def test_random_groups(target: str, drawn: tuple[str, int, Pairs]) -> None:
    body, n, wanted = drawn
    note(body)
    in_place_is_right(body, n, wanted, target)


def allowed(lines: list[str], result: str) -> list[int]:
    """The arguments whose place the result may take."""
    body = group(lines, [result], 33)
    return [i for i in range(len(ARGUMENTS)) if in_place_is_right(body, 33, ((0, i),))]


def test_element_by_element_every_pairing_is_allowed() -> None:
    """As in an optimizer's step: two new values, each of all old ones."""
    lines = [
        *step("subtract", "%m", "%a", "%b", 33),
        *step("maximum", "%p", "%m", "%c", 33),
    ]
    body = group(lines, ["%p", "%m"], 33)
    for places in itertools.permutations(range(3), 2):
        wanted = tuple(enumerate(places))
        assert in_place_is_right(body, 33, wanted) == wanted


@pytest.mark.parametrize("kind", READ_ELSEWHERE)
def test_a_parameter_that_is_read_elsewhere_is_kept(kind: str) -> None:
    lines = [*step(kind, "%t", "%a", "%a", 33), *step("subtract", "%r", "%t", "%b", 33)]
    assert allowed(lines, "%r") == [1, 2]


def test_part_of_a_tensor_is_changed_in_place() -> None:
    t, i, b = (f"tensor<33x33x{elem}>" for elem in ("f32", "i64", "i1"))
    lines = [
        f"%i = stablehlo.iota dim = 1 : {i}",
        f"%n = stablehlo.constant dense<20> : {i}",
        f"%k = stablehlo.compare LT, %i, %n : ({i}, {i}) -> {b}",
        f"%r = stablehlo.select %k, %a, %b : {b}, {t}",
    ]
    assert allowed(lines, "%r") == [0, 1, 2]


def test_what_may_be_overwritten_is_not_streamed() -> None:
    """A parameter may begin anywhere; a streamed store needs whole cache lines."""
    body = group(step("negate", "%r", "%a", "%a", 64), ["%r"], 64)
    (only,) = read_program(oracle.parse(outlined(body))).groups.values()
    with every_result_large():
        (apart,) = generate(only, detect("x86-64-v3"))
        (shared,) = generate(only, detect("x86-64-v3"), [(0, 3)])
    assert "nontemporal" in apart.text
    assert apart.overwrites == ()
    assert "nontemporal" not in shared.text
    assert shared.overwrites == ((0, 3),)
