"""Large products: every count of blocks of k, chunks of rows, spans and groups of panels.

NumPy is the oracle: the interpreter would take minutes.
"""

from __future__ import annotations

import numpy as np
import pytest

from neuron_compile.neff.codegen.dispatch import generate
from neuron_compile.neff.codegen.module import read_program
from neuron_compile.neff.target import Target, detect, make
from tests import oracle
from tests.neff.codegen.native import outlined, run
from tests.neff.codegen.test_contract import dot

TARGETS = [detect(), make("x86-64-v3")]
PAIRS = make("x86-64-v4", ["avx512_bf16"])


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize("form", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(
    "size",
    [
        # Where A lies along k it is mostly read in place, all of k in one block up to 4096.
        (64, 64, 96),
        (30, 70, 257),
        (9, 3000, 20),
        (6, 30000, 10),  # one panel longer than a thread keeps of its own
        (70, 200, 120),
        (40, 1733, 40),  # packed A: k without a divisor
        (300, 1000, 80),
        (26, 1030, 700),  # packed A: two blocks of k, the second one partly empty
        (250, 1100, 900),  # packed A: more panels than wait in memory; some columns missing
        (64, 4096, 70),  # rows of A in one set of the cache
        (250, 4608, 900),  # blocks of k in place, more panels than one group or span
        (450, 6144, 30),  # packed: in chunks of rows and blocks of k
        (20, 4099, 40),  # packed everywhere: k too long for one block, without a divisor
        (16, 900, 1700),  # several groups of packed panels, the last one not full
    ],
)
def test_every_division_into_blocks(size: tuple[int, int, int], form: str, target: Target) -> None:
    m, k, n = size
    random = np.random.default_rng(0)
    a = random.integers(-3, 4, (m, k)).astype(np.float32)  # sums are exact
    b = random.integers(-3, 4, (k, n)).astype(np.float32)
    operands = [
        np.ascontiguousarray(a if form[0] == "n" else a.T),
        np.ascontiguousarray(b if form[1] == "n" else b.T),
    ]
    (result,) = run(outlined(dot(m, k, n, "f32", form), "contract"), operands, target)
    np.testing.assert_array_equal(result, a @ b)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize("k", [1030, 4096, 4099, 4608])
@pytest.mark.parametrize("form", ["nt", "tn"])
@pytest.mark.parametrize("side", [0, 1])
def test_an_infinite_element_reaches_its_row_or_column_only(
    side: int, form: str, k: int, target: Target
) -> None:
    """Blocks that reach past the end of k multiply nothing by it: 0 times infinity is NaN."""
    size = 70
    a, b = np.ones((size, k), np.float32), np.ones((k, size), np.float32)
    want = np.full((size, size), k, np.float32)
    if side == 0:
        a[7, -1], want[7] = np.inf, np.inf
    else:
        b[-1, 7], want[:, 7] = np.inf, np.inf
    operands = [
        np.ascontiguousarray(a if form[0] == "n" else a.T),
        np.ascontiguousarray(b if form[1] == "n" else b.T),
    ]
    (result,) = run(outlined(dot(size, k, size, "f32", form), "contract"), operands, target)
    np.testing.assert_array_equal(result, want)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize("form", ["nn", "nt", "tn"])
@pytest.mark.parametrize("elem", ["i1", "i8", "f64"])
@pytest.mark.parametrize("size", [(64, 501, 200), (20, 6144, 60)])
def test_large_products_of_other_types(
    size: tuple[int, int, int], elem: str, form: str, target: Target
) -> None:
    m, k, n = size
    random = np.random.default_rng(0)
    dtype = {"i1": np.bool_, "i8": np.int8, "f64": np.float64}[elem]
    a = (random.random((m, k)) < 0.05).astype(dtype)
    b = (random.random((k, n)) < 0.05).astype(dtype)
    operands = [
        np.ascontiguousarray(a if form[0] == "n" else a.T),
        np.ascontiguousarray(b if form[1] == "n" else b.T),
    ]
    (result,) = run(outlined(dot(m, k, n, elem, form), "contract"), operands, target)
    np.testing.assert_array_equal(result, a @ b)


@pytest.mark.parametrize("elem", ["i8", "f32"])
@pytest.mark.parametrize("size", [(16384, 97, 6000), (100000, 97, 8000), (9000, 4099, 900)])
def test_no_size_needs_more_than_the_stack(size: tuple[int, int, int], elem: str) -> None:
    """A computed A is packed; padding counts as much as the rows where these are short."""
    m, k, n = size
    twice = f"%c = stablehlo.add %a, %a : tensor<{m}x{k}x{elem}>\n  %r"
    body = (
        dot(m, k, n, elem, "nt").replace("%r", twice, 1).replace("dot_general %a", "dot_general %c")
    )
    (group,) = read_program(oracle.parse(outlined(body, "contract"))).groups.values()
    for target in TARGETS:
        assert generate(group, target)


@pytest.mark.skipif(not PAIRS.supports_on_host(), reason="this CPU has no product of pairs")
@pytest.mark.parametrize("form", ["nn", "nt", "tn"])
@pytest.mark.parametrize("size", [(70, 200, 120), (40, 1100, 500)])
def test_large_products_of_bfloat16_pairs(size: tuple[int, int, int], form: str) -> None:
    _check_bfloat16(size, form, PAIRS)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize("form", ["nn", "nt", "tn"])
@pytest.mark.parametrize("size", [(70, 200, 120), (40, 1100, 500)])
def test_large_products_of_bfloat16(size: tuple[int, int, int], form: str, target: Target) -> None:
    _check_bfloat16(size, form, target)


def _check_bfloat16(size: tuple[int, int, int], form: str, target: Target) -> None:
    """Mostly zeros, so that every sum is an integer that bfloat16 can hold."""
    m, k, n = size
    random = np.random.default_rng(0)
    a = random.integers(-1, 2, (m, k)).astype(np.float32)
    b = random.integers(-1, 2, (k, n)).astype(np.float32) * (random.random((k, n)) < 0.3)
    want = a @ b
    assert np.abs(want).max() <= 256
    operands = [
        _bits(np.ascontiguousarray(a if form[0] == "n" else a.T)),
        _bits(np.ascontiguousarray(b if form[1] == "n" else b.T)),
    ]
    (result,) = run(outlined(dot(m, k, n, "bf16", form), "contract"), operands, target)
    np.testing.assert_array_equal(result, _bits(want))


def _bits(values: np.ndarray) -> np.ndarray:
    """bfloat16 as the upper half of float32, for values that it holds exactly."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize("form", ["nn", "nt", "tn"])
@pytest.mark.parametrize(
    ("size", "better"), [((24, 4096, 48), 1.5), ((24, 100000, 48), 4), ((6, 50000, 8), 1.5)]
)
def test_rounding_errors_of_long_sums_do_not_add_up(
    size: tuple[int, int, int], better: float, form: str, target: Target
) -> None:
    """Against a sum from the first product to the last, whose error grows with their number."""
    m, k, n = size
    random = np.random.default_rng(0)
    a = random.standard_normal((m, k)).astype(np.float32)
    b = random.standard_normal((k, n)).astype(np.float32)
    operands = [
        np.ascontiguousarray(a if form[0] == "n" else a.T),
        np.ascontiguousarray(b if form[1] == "n" else b.T),
    ]
    (result,) = run(outlined(dot(m, k, n, "f32", form), "contract"), operands, target)
    exact = a.astype(np.float64) @ b
    one_by_one = np.zeros((m, n), np.float32)
    for i in range(k):
        one_by_one += a[:, i : i + 1] * b[i]
    assert np.std(result - exact) < np.std(one_by_one - exact) / better
