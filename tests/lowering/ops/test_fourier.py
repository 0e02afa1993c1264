"""Fourier transforms against eager's."""

from __future__ import annotations

import pytest
import torch

from neuron_compile.lowering import find_unsupported
from neuron_compile.lowering.ops.fourier import balanced_factor, largest_prime_factor
from tests.lowering.single_op import check, graph_of


def values(*shape: int) -> torch.Tensor:
    return torch.complex(torch.randn(shape), torch.randn(shape))


@pytest.mark.parametrize("n", [1, 2, 7, 16, 60, 64, 67, 96, 210, 256])
@pytest.mark.parametrize("norm", ["forward", "ortho", "backward"])
def test_lengths(n: int, norm: str) -> None:
    x = values(2, n)
    check(lambda x: [torch.fft.fft(x, norm=norm), torch.fft.ifft(x, norm=norm)], x, tolerance=2e-6)
    check(lambda x: torch.fft.rfft(x, norm=norm), x.real, tolerance=2e-6)
    check(lambda x: torch.fft.irfft(x, n=n, norm=norm), x[:, : n // 2 + 1], tolerance=2e-6)


def test_dimensions() -> None:
    x = values(3, 4, 5)
    check(
        lambda x: [torch.fft.fftn(x), torch.fft.fft2(x), torch.fft.fft(x, dim=0)], x, tolerance=2e-6
    )
    check(lambda x: [torch.fft.rfftn(x), torch.fft.rfft2(x)], x.real, tolerance=2e-6)
    check(lambda x: [torch.fft.irfftn(x), torch.fft.hfft(x)], x, tolerance=2e-6)


def test_double_precision() -> None:
    check(torch.fft.fft, values(3, 90).to(torch.complex128), tolerance=1e-14)


def test_precision_does_not_fall_with_the_length() -> None:
    x = values(1, 4096)
    exact = torch.fft.fft(x.to(torch.complex128))
    from tests.lowering.single_op import run

    (made,) = run(torch.fft.fft, x)
    error = (made - exact).abs().pow(2).mean().sqrt() / exact.abs().pow(2).mean().sqrt()
    assert error < 3e-7


def test_large_primes_are_reported() -> None:
    graph, _ = graph_of(torch.fft.fft, [values(1031)])
    assert "prime factor above 512" in find_unsupported(graph)[0].reason


def test_factors() -> None:
    assert [largest_prime_factor(n) for n in (1, 2, 12, 97, 1024, 2 * 509)] == [1, 2, 3, 97, 2, 509]
    assert [balanced_factor(n) for n in (12, 64, 97, 210)] == [3, 8, 1, 14]
