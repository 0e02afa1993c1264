"""Updates that the compiled code writes into its arguments at once: caches of keys and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from neuron_compile import shim
from tests.semantics import assert_same_effect

SIZE = 40


def cache() -> torch.Tensor:
    return torch.arange(2.0 * 3 * SIZE * 4).reshape(2, 3, SIZE, 4)


def row(value: float = -1.0) -> torch.Tensor:
    return torch.full((2, 3, 1, 4), value) - torch.arange(4.0)


@pytest.fixture
def written_in_place(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[int, int], ...]]:
    """For each callable that is made, the pairs of outputs and inputs that share memory."""
    seen: list[tuple[tuple[int, int], ...]] = []
    real = shim.make_callable

    def watch(plan: Any, program: Any, *rest: Any, **more: Any) -> Callable[..., Any]:
        seen.append(tuple(p for p in plan.updates if p in program.neff.plan.in_place))
        return real(plan, program, *rest, **more)

    monkeypatch.setattr(shim, "make_callable", watch)
    return seen


def copied(c, k, i):
    c.index_copy_(2, i, k)
    return k + 1


def assigned(c, k, i):
    c[:, :, i] = k
    return k + 1


def added(c, k, i):
    c.index_add_(2, i, k, alpha=2)
    return k + 1


def read_afterwards(c, k, i):
    c.index_copy_(2, i, k)
    return c.sum(2)


def returned(c, k, i):
    c.index_copy_(2, i, k)
    return c, k + 1


@pytest.mark.parametrize("f", [copied, assigned, added, read_afterwards, returned])
def test_one_update_is_written_in_place(f, written_in_place) -> None:
    assert_same_effect(f, lambda: [cache(), row(), torch.tensor([7])], calls=3)
    assert [len(pairs) for pairs in written_in_place] == [1]


def read_before(c, k, i):
    old = c.sum(2)
    c.index_copy_(2, i, k)
    return old


def reads_itself(c, k, i):
    c.index_copy_(2, i, c[:, :, :1] + k)
    return k + 1


def updated_twice(c, k, i):
    c.index_copy_(2, i, k)
    c.index_copy_(2, i + 1, k * 2)
    return k + 1


def old_value_returned(c, k, i):
    old = c.clone()
    c.index_copy_(2, i, k)
    return old


def changed_afterwards(c, k, i):
    c.index_copy_(2, i, k)
    c.mul_(2)
    return k + 1


def swapped(c, k, i):
    d = c.flip(2)
    c.index_copy_(2, i, k)
    return d, c * d


def views_of_the_new_value(c, k, i):
    c.index_copy_(2, i, k)
    return c, c[:, :, 1:3], c.flatten()


@pytest.mark.parametrize(
    "f",
    [
        read_before,
        reads_itself,
        updated_twice,
        old_value_returned,
        changed_afterwards,
        swapped,
        views_of_the_new_value,
    ],
)
def test_what_reads_the_old_value_reads_the_old_value(f) -> None:
    assert_same_effect(f, lambda: [cache(), row(), torch.tensor([7])], calls=2)


def test_two_caches_of_attention(written_in_place) -> None:
    def f(q, c, d, k, v, i):
        c.index_copy_(2, i, k)
        d.index_copy_(2, i, v)
        return torch.nn.functional.scaled_dot_product_attention(q, c, d)

    def make():
        return [row(), cache() / 960, cache(), row(0.5), row(2), torch.tensor([SIZE - 1])]

    assert_same_effect(f, make, calls=2, rtol=1e-5, atol=1e-4)
    assert [len(pairs) for pairs in written_in_place] == [2]


def test_the_argument_keeps_its_memory_and_its_version_counts() -> None:
    c, k, i = cache(), row(), torch.tensor([3])
    compiled = torch.compile(copied, backend="neuron")
    address, version = c.data_ptr(), c._version
    compiled(c, k, i)
    assert c.data_ptr() == address
    assert c._version > version


@pytest.mark.parametrize(
    "lay_out",
    [
        lambda c: c.transpose(1, 3).contiguous().transpose(1, 3),
        lambda c: torch.cat([c, c], 3)[..., ::2],
        lambda c: torch.cat([c, c], 2)[:, :, 3 : 3 + SIZE],
    ],
    ids=["permuted", "every second", "part of a larger one"],
)
@pytest.mark.parametrize("f", [copied, assigned, added])
def test_caches_of_other_layouts(f, lay_out) -> None:
    def make():
        return [lay_out(cache()), row(), torch.tensor([7])]

    assert_same_effect(f, make, calls=2)


def test_rows_beside_a_part_stay_as_they_are() -> None:
    whole = torch.cat([cache(), cache()], 2)
    before = whole.clone()
    torch.compile(copied, backend="neuron")(whole[:, :, 3 : 3 + SIZE], row(), torch.tensor([7]))
    before[:, :, 10:11] = row()
    assert torch.equal(whole, before)


def test_symbolic_sizes() -> None:
    compiled = torch.compile(copied, backend="neuron", dynamic=True)
    for size in (5, 9, 6):
        ours, theirs = cache()[:, :, :size].clone(), cache()[:, :, :size].clone()
        assert torch.equal(
            compiled(ours, row(), torch.tensor([size - 1])),
            copied(theirs, row(), torch.tensor([size - 1])),
        )
        assert torch.equal(ours, theirs)


def test_the_same_memory_under_two_names() -> None:
    def f(c, d, k, i):
        c.index_copy_(2, i, k)
        return d + 1

    def same():
        c = cache()
        return [c, c, row(), torch.tensor([7])]

    def overlapping():
        c = cache()
        return [c, c[:, :, 1:], row(), torch.tensor([7])]

    def apart():
        return [cache(), cache(), row(), torch.tensor([7])]

    compiled = torch.compile(f, backend="neuron")
    for make in (apart, same, overlapping, apart):
        ours, theirs = make(), make()
        assert torch.equal(compiled(*ours), f(*theirs))
        assert torch.equal(ours[0], theirs[0])
        assert torch.equal(ours[1], theirs[1])


def test_a_buffer_of_a_module_under_training() -> None:
    class Memory(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.register_buffer("kept", torch.zeros(6, 4))

        def forward(self, x, i):
            y = self.linear(x)
            self.kept.index_copy_(0, i, y.detach())
            return (y * self.kept.sum(0)).sum()

    torch.manual_seed(0)
    ours = Memory()
    theirs = Memory()
    theirs.load_state_dict(ours.state_dict())
    compiled = torch.compile(ours, backend="neuron")
    for step in range(3):
        x, i = torch.randn(2, 4), torch.tensor([step, step + 3])
        for model, call in ((ours, compiled), (theirs, theirs)):
            model.zero_grad()
            call(x, i).backward()
        torch.testing.assert_close(ours.kept, theirs.kept)
        torch.testing.assert_close(ours.linear.weight.grad, theirs.linear.weight.grad)


def test_hooks_of_saved_tensors_see_the_old_value() -> None:
    """The argument is saved for backward itself, and written back only after the hooks ran."""

    def f(w, c, i):
        y = (w * c.exp()).sum()
        c.index_copy_(0, i, w.detach()[:1])
        return y

    gradients = []
    for function in (f, torch.compile(f, backend="neuron")):
        w = torch.ones(6, 4, requires_grad=True)
        c = torch.arange(24.0).view(6, 4) / 24
        with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda x: x):
            y = function(w, c, torch.tensor([3]))
        y.backward()
        gradients.append(w.grad)
    torch.testing.assert_close(*gradients)


def test_a_failing_assertion_leaves_the_cache_as_it_was() -> None:
    def f(c, k, i):
        torch._assert_async(k.sum() > 0, "negative")
        c.index_copy_(2, i, k)
        return k + 1

    compiled = torch.compile(f, backend="neuron")
    c = cache()
    with pytest.raises(RuntimeError, match="negative"):
        compiled(c, row(), torch.tensor([7]))
    assert torch.equal(c, cache())
    compiled(c, row(9.0), torch.tensor([7]))
    assert torch.equal(c[:, :, 7:8], row(9.0))


def added_and_scaled(x, y):
    x.add_(y).mul_(2)
    return y - 1


def part_replaced(x, y):
    x[:, 3:7] = y[:, 3:7] * 2
    return y - 1


def both_changed(x, y):
    old = x.clone()
    x.add_(y)
    y.sub_(old)
    return old.sum()


def exchanged(x, y):
    old = x.clone()
    x.copy_(y)
    y.copy_(old)


# Of two values that are each computed of both old ones, the last can take its argument's place.
@pytest.mark.parametrize(
    ("f", "count"), [(added_and_scaled, 1), (part_replaced, 1), (both_changed, 1), (exchanged, 0)]
)
def test_changes_element_by_element_are_written_in_place(f, count: int, written_in_place) -> None:
    assert_same_effect(f, lambda: [torch.randn(30, 40), torch.randn(30, 40)], calls=3)
    assert [len(pairs) for pairs in written_in_place] == [count]


def transposed(x, y):
    x.add_(x.t().clone())
    return y


def row_sums(x, y):
    x.sub_(x.sum(1, keepdim=True))
    return y


def shifted(x, y):
    x[1:] += x[:-1].clone()
    return y


def read_by_a_product(x, y):
    z = x @ y
    x.mul_(2)
    return z


@pytest.mark.parametrize("f", [transposed, row_sums, shifted])
def test_changes_that_read_elsewhere_are_written_back(f, written_in_place) -> None:
    assert_same_effect(f, lambda: [torch.randn(40, 40), torch.randn(40, 40)], calls=3)
    assert [len(pairs) for pairs in written_in_place] == [0]


def test_a_change_behind_a_product_that_reads_the_old_value() -> None:
    assert_same_effect(
        read_by_a_product,
        lambda: [torch.randn(40, 40), torch.randn(40, 40)],
        calls=2,
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("offset", [0, 1, 3])
def test_large_arguments_that_begin_anywhere(offset: int) -> None:
    """From 8 MiB on results are stored in whole cache lines, unless they are an argument's."""

    def make():
        return [torch.arange(float((1 << 21) + 3))[offset : (1 << 21) + offset], torch.ones(1)]

    assert_same_effect(added_and_scaled, make, calls=2)


OPTIMIZERS = {
    "AdamW": lambda w: torch.optim.AdamW(w, lr=0.1, foreach=True),
    "Adam with maxima": lambda w: torch.optim.Adam(w, lr=0.1, amsgrad=True, foreach=True),
    "SGD": lambda w: torch.optim.SGD(w, lr=0.1, momentum=0.9, nesterov=True, foreach=True),
    "RMSprop": lambda w: torch.optim.RMSprop(w, lr=0.1, momentum=0.5, foreach=True),
    "ASGD": lambda w: torch.optim.ASGD(w, lr=0.1, foreach=True),
    "one by one": lambda w: torch.optim.Adam(w, lr=0.1, foreach=False),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_step_of_an_optimizer(name: str, written_in_place) -> None:
    """Weights and moments are changed where they are, as eager's optimizers do."""

    def weights():
        torch.manual_seed(0)
        return [torch.nn.Parameter(torch.randn(n, 40)) for n in (30, 30, 7)]

    ours, theirs = weights(), weights()
    own, other = OPTIMIZERS[name](ours), OPTIMIZERS[name](theirs)
    torch._dynamo.reset()
    step = torch.compile(own.step, backend="neuron")
    for round_ in range(4):
        for a, b in zip(ours, theirs, strict=True):
            torch.manual_seed(round_)
            a.grad, b.grad = a.detach() + 1, b.detach() + 1
        step()
        other.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5)
    assert max(len(pairs) for pairs in written_in_place) >= 2 * len(ours)


def test_an_index_that_is_changed_behind_its_use(written_in_place) -> None:
    """The second of two index tensors is read in another order than it is written."""

    def f(x, i, j):
        y = x[i % 100, j.flip(0) % 100]
        j.add_(1)
        return y

    def make():
        return [torch.randint(0, 100, (100, 100)), *(torch.randint(0, 100, (2, 50000)))]

    assert_same_effect(f, make, calls=2)
    assert [len(pairs) for pairs in written_in_place] == [0]


def test_interleaved_views_with_symbolic_sizes() -> None:
    def f(x, y):
        x.add_(y)

    def make():
        base = torch.arange(48.0).reshape(2, 3, 4, 2)
        return [base[..., 0], base[..., 1]]

    assert_same_effect(f, make, dynamic=True)


def test_copies_that_need_not_block() -> None:
    def f(a, b):
        a.copy_(b, non_blocking=True)
        torch._foreach_copy_([b], [a[:1].expand(3)], non_blocking=True)
        torch._foreach_zero_([a])

    assert_same_effect(f, lambda: [torch.ones(3), torch.tensor([1, 2, 3])])
