"""Large products: every count of blocks of k, chunks of rows, spans and groups of panels.

NumPy is the oracle: the interpreter would take minutes.
"""

from __future__ import annotations

import numpy as np
import pytest

from neuron_compile.neff.target import Target, detect, make
from tests.neff.codegen.native import outlined, run
from tests.neff.codegen.test_contract import dot

TARGETS = [detect(), make("x86-64-v3")]
PAIRS = make("x86-64-v4", ["avx512_bf16"])


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize("form", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(
    "size",
    [
        (64, 64, 96),
        (30, 70, 257),
        (9, 3000, 20),
        (6, 30000, 10),  # one panel longer than a thread keeps of its own
        (70, 200, 120),
        (40, 1733, 40),  # k without a divisor
        (300, 1000, 80),  # two chunks of rows, one block of k
        (26, 1030, 700),  # two blocks of k, the second one partly empty
        (250, 1100, 900),  # more panels than wait in memory, some columns missing
        (26, 4608, 70),  # k of nine blocks, whose rows of A share cache sets
        (450, 6144, 30),  # the same in two chunks of rows
        (20, 4099, 40),  # k too long for one block, without a divisor
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
@pytest.mark.parametrize("k", [1024, 1030, 4096, 4099, 4608])
def test_an_infinite_element_of_a_reaches_its_row_only(k: int, target: Target) -> None:
    """Blocks that reach past the end of k multiply nothing by it: 0 times infinity is NaN."""
    a = np.ones((20, k), np.float32)
    a[7, -1] = np.inf
    b = np.ones((40, k), np.float32)
    (result,) = run(outlined(dot(20, k, 40, "f32", "nt"), "contract"), [a, b], target)
    want = np.full((20, 40), k, np.float32)
    want[7] = np.inf
    np.testing.assert_array_equal(result, want)


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
