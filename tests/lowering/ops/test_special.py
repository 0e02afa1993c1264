"""Special functions against eager."""

from __future__ import annotations

import math

import pytest
import torch

from neuron_compile.lowering import find_unsupported
from tests.lowering.single_op import check, graph_of, run

aten = torch.ops.aten
BESSEL = [torch.special.i0, torch.special.i0e, torch.special.i1, torch.special.i1e]


@pytest.mark.parametrize("function", BESSEL, ids=lambda f: f.__name__)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 4e-15)])
def test_bessel(function, dtype: torch.dtype, tolerance: float) -> None:
    x = torch.cat([torch.linspace(-40, 40, 81), torch.tensor([1e-3, 12.0, 12.001, 20.0, 20.001])])
    for part in (x[x.abs() < 2], x):  # the small ones on a scale of their own
        check(function, part.to(dtype), tolerance=tolerance)


def test_bessel_at_the_edges() -> None:
    x = torch.tensor([math.nan, 0.0, -0.0, 80.0, -80.0, 1e4])
    check(lambda x: [torch.special.i0e(x), torch.special.i1e(x)], x, tolerance=2e-6)
    check(lambda x: [torch.special.i0(x), torch.special.i1(x)], x[:5], tolerance=4e-6)
    check(torch.special.i0, torch.tensor([1, 2]), tolerance=2e-6)


# Eager's trigamma stops its series early: it is good to 2e-9.
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 4e-6), (torch.float64, 2e-9)])
def test_polygamma(dtype: torch.dtype, tolerance: float) -> None:
    x = torch.tensor([0.1, 0.4, 0.6, 1.0, 3.3, 12.0, 1000.0, -0.3, -2.7], dtype=dtype)
    check(lambda x: [torch.polygamma(0, x), torch.polygamma(1, x)], x, tolerance=tolerance)


def test_trigamma_of_whole_numbers() -> None:
    (made,) = run(lambda x: torch.polygamma(1, x), torch.arange(1.0, 9.0, dtype=torch.float64))
    exact = [math.pi**2 / 6 - sum(1 / k**2 for k in range(1, n)) for n in range(1, 9)]
    torch.testing.assert_close(made, torch.tensor(exact, dtype=torch.float64), rtol=1e-14, atol=0)


def test_polygamma_of_high_order_is_reported() -> None:
    graph, _ = graph_of(lambda x: torch.polygamma(2, x), [torch.rand(3)])
    assert find_unsupported(graph)[0].reason == "polygamma of an order above 1"


def test_bits_of_floats() -> None:
    x, y = torch.tensor([1.0, -1.0, 0.0, 5.0, 5.0]), torch.tensor([2.0, 0.0, 1.0, 5.0, -math.inf])
    check(torch.nextafter, x, y, tolerance=0.0)
    check(torch.ldexp, x, torch.tensor([3, -2, 0, 1, 5]))
    check(torch.angle, torch.tensor([1.0, -2.0, 0.0, -0.0, math.nan, -math.inf]))
    check(torch.angle, torch.tensor([3, -4]))
