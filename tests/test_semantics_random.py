"""Random numbers: reproducible, different in each call, the same mask in backward: T026,
T110-T112."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def test_two_dropouts_keep_their_order_and_differ() -> None:  # T026
    def f(x):
        return F.dropout(x, 0.5), F.dropout(x, 0.5)

    a, b = torch.compile(f, backend="neuron")(torch.ones(1000))
    assert not torch.equal(a, b)


def test_dropout_scales_what_it_keeps() -> None:  # T110
    y = torch.compile(lambda x: F.dropout(x, 0.25), backend="neuron")(torch.ones(100_000))
    kept = y != 0
    torch.testing.assert_close(y[kept], torch.full_like(y[kept], 1 / 0.75))
    # Five standard deviations of a binomial with n = 100,000 and p = 0.75.
    assert abs(kept.float().mean().item() - 0.75) < 5 * (0.75 * 0.25 / 100_000) ** 0.5


def test_dropout2d_drops_whole_channels() -> None:  # T110
    y = torch.compile(lambda x: F.dropout2d(x, 0.5), backend="neuron")(torch.ones(8, 64, 5, 5))
    channels = y.flatten(2)
    assert torch.equal(channels.amin(2), channels.amax(2))
    assert set(channels.unique().tolist()) == {0.0, 2.0}
    # Five standard deviations of a binomial with n = 512 and p = 0.5.
    assert abs((channels[..., 0] != 0).float().mean().item() - 0.5) < 5 * (0.25 / 512) ** 0.5


def test_backward_uses_the_mask_of_forward() -> None:  # T111
    x = torch.ones(1000, requires_grad=True)
    y = torch.compile(lambda x: F.dropout(x * 3, 0.5).relu(), backend="neuron")(x)
    y.sum().backward()
    assert 0 < (y != 0).sum() < 1000
    assert torch.equal(x.grad != 0, y != 0)


def test_two_calls_differ_and_a_seed_repeats_them() -> None:  # T112
    compiled = torch.compile(lambda x: F.dropout(x, 0.5), backend="neuron")
    x = torch.ones(1000)

    def sequence():
        torch.manual_seed(7)
        return [compiled(x) for _ in range(3)]

    first, second = sequence(), sequence()
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[1], first[2])


def test_generator_state_set_by_the_user_is_followed() -> None:  # T112
    compiled = torch.compile(lambda x: torch.rand_like(x), backend="neuron")
    x = torch.empty(100)
    with torch.random.fork_rng():
        state = torch.get_rng_state()
        a = compiled(x)
        torch.set_rng_state(state)
        b = compiled(x)
    assert torch.equal(a, b)


def test_random_in_eager_between_calls_changes_compiled_numbers() -> None:
    compiled = torch.compile(lambda x: torch.rand_like(x), backend="neuron")
    x = torch.empty(100)
    torch.manual_seed(0)
    a = compiled(x)
    torch.manual_seed(0)
    torch.rand(1)
    assert not torch.equal(compiled(x), a)
