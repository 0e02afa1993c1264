"""Complex tensors against eager: they are pairs of real ones all the way."""

from __future__ import annotations

import math
import re

import pytest
import torch

from neuron_compile.lowering import find_unsupported, lower
from tests.lowering.single_op import check, graph_of

aten = torch.ops.aten


def values(*shape: int) -> torch.Tensor:
    return torch.complex(torch.randn(shape) * 2, torch.randn(shape) * 2)


BINARY = {
    "add": lambda x, y: [x + y, x + 1, x + 2j, torch.add(x, y, alpha=0.5), x + y.real],
    "sub": lambda x, y: [x - y, 1 - x, x - 2j, torch.sub(x, y, alpha=1 + 1j)],
    "mul": lambda x, y: [x * y, x * 3, x * 2j, x * y.real],
    "div": lambda x, y: [x / y, x / 3, 1 / x, x / 2j],
    "eq": lambda x, y: [x == y, x != y, x == x, x == 1],
    "pow": lambda x, y: [x**2, x**3, x**-1, x**0.5, x**y, x**0, 2**x],
    "where": lambda x, y: [torch.where(x.real > 0, x, y), torch.where(x.real > 0, x, 1.5)],
    "fused": lambda x, y: [torch.addcmul(x, x, y, value=0.5), torch.addcdiv(x, x, y, value=2)],
}


@pytest.mark.parametrize("name", list(BINARY))
def test_two_operands(name: str) -> None:
    check(BINARY[name], values(3, 4), values(4), tolerance=2e-5)


MOVES = {
    "view": lambda x: [x.view(4, 6), x.t() if x.dim() < 3 else x.permute(2, 0, 1), x[:, 1, ::2]],
    "cat": lambda x: [torch.cat([x, x.real.unsqueeze(0)[0]], 1), torch.stack([x, x.conj()])],
    "split": lambda x: x.split([1, 2], 1),
    "index": lambda x: [x[torch.tensor([1, 0])], x.index_select(2, torch.tensor([3, 0]))],
    "parts": lambda x: [x.real, x.imag, torch.view_as_real(x), torch.complex(x.real, x.imag * 2)],
    "pad": lambda x: torch.nn.functional.pad(x, (1, 2), value=3.0),
    "sums": lambda x: [x.sum(), x.mean(1), x.cumsum(0), x.prod(1), x.prod()],
    "truth": lambda x: [
        x.any(),
        x.all(1),
        x.logical_not(),
        x.count_nonzero(),
        x.isnan(),
        x.isinf(),
    ],
    "convert": lambda x: [x.to(torch.complex128), x.to(torch.bool), x.real.to(torch.complex64)],
    "constants": lambda x: [torch.full((2,), 1 + 2j), torch.zeros_like(x), torch.ones_like(x)],
    "fill": lambda x: [x.masked_fill(x.real > 0, 1j), torch.fill(x, 2.0), x.tril(), x.flip(0)],
    "copies": lambda x: [
        torch.permute_copy(x, (2, 0, 1)),
        torch.diagonal_copy(x),
        x.take(torch.tensor([5, 0])),
    ],
    "spread": lambda x: [x.var(), x.std(1), *torch.var_mean(x, (0, 2), correction=0, keepdim=True)],
    "norm": lambda x: [torch.linalg.vector_norm(x, p, 1) for p in (1, 2, math.inf)],
}


@pytest.mark.parametrize("name", list(MOVES))
@pytest.mark.filterwarnings("ignore:Casting complex values to real:UserWarning")
def test_one_operand(name: str) -> None:
    check(MOVES[name], values(2, 3, 4), tolerance=1e-5)


FUNCTIONS = [
    torch.abs, torch.angle, torch.sgn, torch.reciprocal, torch.exp, torch.log, torch.log2,
    torch.log10, torch.log1p, torch.sqrt, torch.rsqrt, torch.sin, torch.cos, torch.tan, torch.sinh,
    torch.cosh, torch.tanh, torch.sigmoid, torch.neg, torch.exp2, torch.expm1,
    torch.nn.functional.silu, torch.conj_physical,
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_function(function) -> None:
    check(function, values(30), tolerance=2e-5)


def test_functions_at_zero_and_on_the_axes() -> None:
    x = torch.tensor([0j, 1 + 0j, -1 + 0j, 1j, -1j])  # T122
    check(lambda x: [x.abs(), x.angle(), x.sqrt(), x.sgn(), x.exp(), torch.tanh(x)], x)


def test_large_values_do_not_overflow_early() -> None:
    x = torch.tensor([3e30 + 4e30j, 50 + 1j, -60 + 2j])
    check(lambda x: [x.abs(), x / x, torch.tanh(x), x.sqrt()], x)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (torch.float32, torch.complex64),
        (torch.float64, torch.complex64),
        (torch.float32, torch.complex128),
        (torch.uint8, torch.complex64),
        (torch.complex64, torch.float32),
        (torch.complex64, torch.int64),
        (torch.complex64, torch.int16),
        (torch.complex64, torch.complex128),
        (torch.complex128, torch.complex64),
    ],
)
def test_bytes_seen_as_another_dtype(source: torch.dtype, target: torch.dtype) -> None:
    x = torch.arange(96).to(torch.uint8).reshape(2, 48).view(source)
    check(lambda x: x.view(target), x)
    if source.itemsize == target.itemsize:
        check(lambda x: x.view(target), x[0, 0])


def test_the_imaginary_part_of_a_conjugate() -> None:
    """PyTorch keeps the sign as something still to be done, inside of a graph as well."""
    x = values(3, 4)
    check(lambda x: [x.conj().imag * 2, x.conj().real + 1], x)
    check(lambda x: [x.imag + 1, x.imag], x.conj())


def test_zero_d_addition() -> None:
    check(lambda x, y: x + y, torch.tensor(1 + 2j), torch.tensor(2 - 1j))  # T089


def test_products() -> None:
    a, c, v = values(3, 4), values(4, 5), values(4)
    check(
        lambda a, c, v: [a @ c, a @ v, torch.dot(v, v), torch.vdot(v, v)], a, c, v, tolerance=1e-5
    )
    check(lambda m, a, c: torch.addmm(m, a, c, beta=0.5j, alpha=2), values(5), a, c, tolerance=1e-5)
    check(torch.bmm, values(2, 3, 4), values(2, 4, 2), tolerance=1e-5)


def test_double_precision() -> None:
    check(
        lambda x, y: [x * y, x / y, x.exp()],
        values(5).to(torch.complex128),
        values(5).to(torch.complex128),
    )


def test_no_complex_type_reaches_stablehlo() -> None:
    graph, _ = graph_of(lambda x: (x * x).t(), [values(2, 3).t()])
    text = str(lower(graph).module)
    assert "complex" not in text
    assert re.search(r"%arg0: tensor<3x2x2xf32> {neuron.strides = array<i64: 2, 6, 1>}", text)


def test_what_has_no_emitter_is_reported() -> None:
    graph, _ = graph_of(lambda x: aten.asin.default(x), [values(2)])
    assert find_unsupported(graph)[0].reason == "no emitter for complex tensors"


def test_conditions_of_the_real_emitter_hold_for_parts() -> None:
    graph, _ = graph_of(lambda x: x.as_strided((2,), (1,), 0), [values(10)[2:6]])
    assert "outside" in find_unsupported(graph)[0].reason


def test_rotary_embedding_as_llama_first_had_it() -> None:
    def rotate(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        turns = torch.polar(torch.ones_like(angles), angles)
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(-2)

    check(rotate, torch.randn(2, 5, 8), torch.randn(5, 4))
