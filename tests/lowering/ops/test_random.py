"""Random numbers: ranges, moments, independence and repeatability, over known Philox bits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from neuron_compile.lowering import lower
from tests.lowering.philox import put_bits_in_place, words
from tests.lowering.samples import FLOATS, tensor
from tests.lowering.single_op import check, graph_of, run

aten = torch.ops.aten

COUNT = 8000
# Of a mean of COUNT numbers: five standard deviations of one, over the root of COUNT.
NEAR = 5 / math.sqrt(COUNT)


def draw(call, *args, state: tuple[int, int] = (1, 2), **kwargs) -> torch.Tensor:
    """The first result, of the dtype and shape eager gives."""
    ours, eager = run(call, *args, state=state, **kwargs)[0], call(*args, **kwargs)
    eager = eager[0] if isinstance(eager, tuple) else eager
    assert (ours.dtype, ours.shape) == (eager.dtype, eager.shape)
    return ours.to(torch.complex128 if ours.is_complex() else torch.float64)


def test_the_bits_are_those_published() -> None:
    """Known answers of Random123 for Philox4x32-10."""
    assert list(words(0, 0, 4)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    again = words(7, (1 << 64) - 1, 8)
    assert list(words(7, 0, 4)) == list(again[4:])


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_never_reaches_one(dtype) -> None:
    """T115. Also for the largest bits there are."""
    sample = draw(aten.rand.default, [COUNT], dtype=dtype)
    assert sample.min() >= 0
    assert sample.max() < 1
    assert abs(sample.mean() - 0.5) < NEAR
    assert abs(sample.var() - 1 / 12) < NEAR
    steps = {torch.bfloat16: 8, torch.float16: 11}.get(dtype)
    if steps:
        assert sample.max() == 1 - 2.0**-steps


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal(dtype) -> None:
    sample = draw(aten.randn.default, [COUNT // 10, 10], dtype=dtype)
    assert abs(sample.mean()) < NEAR
    assert abs(sample.var() - 1) < 2 * NEAR
    assert abs((sample**4).mean() - 3) < 15 * NEAR
    assert torch.isfinite(sample).all()


def test_complex() -> None:
    assert abs(draw(aten.rand.default, [COUNT], dtype=torch.complex64).mean() - 0.5 - 0.5j) < NEAR
    sample = draw(aten.randn.default, [COUNT], dtype=torch.complex64)
    assert abs((sample.abs() ** 2).mean() - 1) < 2 * NEAR


def test_parameters_of_normal_and_uniform() -> None:
    x = torch.zeros(COUNT)
    for sample in (
        draw(aten.normal_functional.default, x, 1.0, 2.0),
        draw(aten.normal.Tensor_float, x + 1, 2.0),
        draw(aten.normal.float_Tensor, 1.0, x + 2),
        draw(aten.normal.Tensor_Tensor, x + 1, x + 2),
        draw(aten.normal.float_float, 1.0, 2.0, [COUNT]),
        draw(lambda t: torch.randn_like(t) * 2 + 1, x),
    ):
        assert abs(sample.mean() - 1) < 2 * NEAR
        assert abs(sample.std() - 2) < 2 * NEAR
    sample = draw(aten.uniform.default, x, -2.0, 3.0)
    assert -2 <= sample.min() < -1.9
    assert 2.9 < sample.max() < 3


@pytest.mark.parametrize(
    ("call", "args", "mean", "spread"),
    [
        (aten.exponential.default, (2.0,), 0.5, 0.5),
        (aten.geometric.default, (0.25,), 4.0, math.sqrt(12)),
        (aten.log_normal.default, (0.0, 0.5), math.exp(0.125), 0.61),
    ],
)
def test_distributions(call, args, mean, spread) -> None:
    sample = draw(call, torch.zeros(COUNT), *args)
    assert abs(sample.mean() - mean) < NEAR * spread
    assert sample.min() > 0


def test_cauchy_has_its_quartiles() -> None:
    sample = draw(aten.cauchy.default, torch.zeros(COUNT), 1.0, 2.0)
    quartiles = torch.quantile(sample, torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64))
    assert torch.allclose(quartiles, torch.tensor([-1.0, 1.0, 3.0]).double(), atol=8 * NEAR)


# ---- masks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_bernoulli(p) -> None:
    x = torch.zeros(COUNT)
    for sample in (
        draw(aten.bernoulli.p, x, p),
        draw(aten.bernoulli.default, x + p),
        draw(aten.bernoulli.Tensor, x, x.double() + p),
    ):
        assert set(sample.unique().tolist()) <= {0.0, 1.0}
        assert abs(sample.mean() - p) <= (NEAR if 0 < p < 1 else 0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_dropout_scales_what_it_keeps(dtype) -> None:
    x = tensor([COUNT], dtype)
    out, mask = run(aten.native_dropout.default, x, 0.25, True)
    assert abs(mask.double().mean() - 0.75) < NEAR
    assert torch.equal(out[~mask], x[~mask] * 0)
    assert torch.allclose(out[mask], x[mask] / 0.75, rtol=2 * torch.finfo(dtype).eps)


def test_dropout_at_its_ends() -> None:
    x = tensor([64])
    check(aten.native_dropout.default, x, 0.3, False)
    check(aten.native_dropout.default, x, 1.0, True)
    check(aten.native_dropout.default, x, 0.0, True)


def test_channel_dropout_drops_whole_channels() -> None:
    """T110."""
    out = run(lambda x: F.dropout2d(x, 0.5), torch.ones(50, 20, 2, 3))[0]
    channels = out.reshape(1000, 6)
    assert torch.equal(channels.amax(1), channels.amin(1))
    assert set(out.unique().tolist()) == {0.0, 2.0}


# ---- independence ----------------------------------------------------------------------------


def test_draws_of_one_graph_share_no_bits() -> None:
    graph, _ = graph_of(
        lambda x: (torch.rand_like(x), torch.randn_like(x), torch.rand_like(x)), [torch.zeros(1000)]
    )
    lowered = lower(graph)
    assert lowered.uses_random
    with lowered.module.context:
        drawn = sorted(put_bits_in_place(lowered.module, (3, 5)))
    assert len(drawn) == 3
    for (start, count), (following, _) in itertools.pairwise(drawn):
        assert start + count // 4 < following


def test_a_state_gives_its_numbers_again_and_another_others() -> None:
    """T112."""
    x = torch.zeros(100)
    first, again, other = (run(torch.rand_like, x, state=s)[0] for s in ((1, 2), (1, 2), (1, 99)))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_two_masks_differ() -> None:
    one, two = run(lambda x: (F.dropout(x), F.dropout(x)), torch.ones(COUNT))
    both = ((one != 0) & (two != 0)).double().mean()
    assert abs(both - 0.25) < NEAR


def test_neighbours_are_independent() -> None:
    sample = draw(aten.rand.default, [COUNT]).numpy()
    for lag in (1, 2, 4):
        assert abs(np.corrcoef(sample[:-lag], sample[lag:])[0, 1]) < NEAR


# ---- integers, permutations, samples ---------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-5, 10), (-(2**40), 2**40), (-(2**63), 2**63 - 1)]
)
def test_integers(low, high) -> None:
    sample = run(aten.randint.low, low, high, [COUNT])[0]
    assert low <= sample.min()
    assert sample.max() < high
    middle = low / 2 + (high - 1) / 2
    assert abs(sample.double().mean() - middle) <= (high - low) * NEAR
    if high - low < 100:
        assert set(sample.tolist()) == set(range(low, high))


def test_integers_in_other_dtypes_and_forms() -> None:
    x = torch.zeros(COUNT)
    assert draw(aten.randint.default, 10, [COUNT], dtype=torch.float32).max() == 9
    assert draw(aten.randint_like.default, x.to(torch.uint8), 10).max() == 9
    assert draw(aten.randint_like.low_dtype, x, 3, 10).min() == 3
    assert draw(aten.random.to, x.long(), 7).max() == 6
    assert draw(aten.random.default, x.bool()).mean() < 1
    assert draw(aten.random.default, x.to(torch.uint8)).max() == 255
    assert draw(aten.random.default, x).max() > 2**23
    assert run(aten.random.default, x.long())[0].max() > 2**62


@pytest.mark.parametrize("n", [0, 1, 3, 1000])
def test_randperm(n) -> None:
    permutation = run(lambda: torch.randperm(n))[0]
    assert torch.equal(permutation.sort().values, torch.arange(n))
    if n == 1000:
        assert not torch.equal(permutation, torch.arange(n))


def test_multinomial() -> None:
    weights = torch.tensor([[0, 1, 2, 3, 4.0, 0], [1, 0, 0, 0, 0, 0]])
    many = run(lambda w: torch.multinomial(w, 4000, replacement=True), weights)[0]
    share = torch.bincount(many[0], minlength=6) / 4000
    assert torch.allclose(share, weights[0] / 10, atol=0.05)
    assert torch.equal(many[1], torch.zeros(4000).long())
    rows = weights[:1].expand(500, 6)
    pairs = run(lambda w: torch.multinomial(w, 2), rows)[0]
    assert (pairs[:, 0] != pairs[:, 1]).all()
    assert not ((pairs == 0) | (pairs == 5)).any()
    first = torch.bincount(pairs[:, 0], minlength=6) / 500
    assert torch.allclose(first, weights[0] / 10, atol=0.1)
