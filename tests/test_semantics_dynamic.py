"""Varying sizes, numbers and options: T093, T124-T127 of the list of public reports."""

from __future__ import annotations

import pytest
import torch

import neuron_compile
from tests.semantics import assert_same_effect


def test_new_size_after_the_second_shape_is_one_capture() -> None:  # automatic dynamic
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("neuron")
    compiled = torch.compile(lambda x: (x * 2).sum(0), backend=counter)
    for n in (3, 5, 6, 7, 5):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), (x * 2).sum(0))
    assert counter.frame_count == 2


@pytest.mark.parametrize("n", [1, 2, 5])
def test_dynamic_true(n: int) -> None:
    def f(x):
        return x.view(-1, 2) * x.shape[0], x.sum(), x.shape[1] * 3

    assert_same_effect(f, lambda: [torch.randn(n, 4)], dynamic=True)


def test_each_size_is_compiled_once() -> None:
    compiled = torch.compile(lambda x: x.exp(), backend="neuron", dynamic=True)
    neuron_compile.reset_stats()
    for n in (3, 5, 3, 5, 3):
        compiled(torch.randn(n))
    assert neuron_compile.stats()["graphs"] == 2


def test_marked_dynamic_stays_dynamic() -> None:  # T124
    compiled = torch.compile(lambda x: x @ x.t() + x.shape[0], backend="neuron", fullgraph=True)
    for n in (3, 5, 8):
        x = torch.randn(n, 4)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(compiled(x), x @ x.t() + n)


def test_marked_dynamic_but_specialised_by_the_user_is_an_error() -> None:  # T124
    def f(x):
        return x * 2 if x.shape[0] == 3 else x

    x = torch.randn(3, 4)
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(Exception, match="mark_dynamic"):
        torch.compile(f, backend="neuron")(x)


def test_sizes_in_views_factories_and_outputs() -> None:
    def f(x, y):
        n, m = x.shape
        z = torch.arange(n, dtype=x.dtype)[:, None] + torch.zeros(n, m + 1)[:, 1:]
        return x.t().reshape(-1), z + x, (y[: n // 2], n * m), x.expand(2, n, m)

    for n in (4, 6):
        assert_same_effect(f, lambda n=n: [torch.randn(n, 3), torch.randn(8)], dynamic=True)


def test_gradients_with_symbolic_sizes() -> None:
    torch.manual_seed(0)
    module = torch.nn.Linear(4, 3)
    compiled = torch.compile(module, backend="neuron", dynamic=True)
    for n in (2, 5, 3):
        x = torch.randn(n, 4)
        module.zero_grad()
        module(x).square().sum().backward()
        expected = module.weight.grad.clone()
        module.zero_grad()
        compiled(x).square().sum().backward()
        torch.testing.assert_close(module.weight.grad, expected)


def test_growing_cache_as_in_decoding() -> None:
    def step(cache, new):
        return torch.cat([cache, new]), (cache.sum() + new.sum())

    compiled = torch.compile(step, backend="neuron")
    ours = theirs = torch.zeros(1, 2)
    for n in range(6):
        new = torch.full((1, 2), float(n))
        ours, a = compiled(ours, new)
        theirs, b = step(theirs, new)
        assert torch.equal(ours, theirs)
        assert torch.equal(a, b)


def test_transposed_and_contiguous_of_one_size() -> None:
    compiled = torch.compile(lambda x: x * 2 + x.sum(), backend="neuron", dynamic=True)
    for x in (torch.randn(3, 3), torch.randn(3, 3).t(), torch.randn(4, 4).t()):
        y = compiled(x)
        torch.testing.assert_close(y, x * 2 + x.sum())
        assert y.stride() == (x * 2).stride()


def test_empty_input_of_a_dynamic_graph() -> None:
    compiled = torch.compile(lambda x: (x * 2, x.sum()), backend="neuron", dynamic=True)
    for n in (3, 0, 1, 2):
        x = torch.randn(n, 4)
        y, total = compiled(x)
        torch.testing.assert_close(y, x * 2)
        torch.testing.assert_close(total, x.sum())


def test_python_number_changes_between_calls() -> None:  # T093
    compiled = torch.compile(lambda x, v: x.clamp(max=v) * v, backend="neuron")
    x = torch.arange(6.0)
    for v in (1.5, 2.5, 3.5, 4, 5):
        torch.testing.assert_close(compiled(x, v), x.clamp(max=v) * v)


def test_a_shape_seen_before_is_not_compiled_again() -> None:  # T126
    compiled = torch.compile(lambda x: x.cos(), backend="neuron")
    for n in (3, 4, 5):
        compiled(torch.randn(n))
    neuron_compile.reset_stats()
    for n in (3, 4, 5):
        compiled(torch.randn(n))
    assert neuron_compile.stats()["compiles"] == 0


def test_size_that_depends_on_data_is_refused_by_name() -> None:
    compiled = torch.compile(lambda x: x.nonzero() * 2, backend="neuron")
    x = torch.arange(3.0)
    assert torch.equal(compiled(x), x.nonzero() * 2)  # the graph breaks
    torch._dynamo.reset()
    with (
        torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True),
        pytest.raises(neuron_compile.LoweringError, match=r"aten\.nonzero.* depends on data"),
    ):
        compiled(x)


def test_other_options_do_not_share_graphs() -> None:  # T127
    def f(x):
        return x.exp()

    x = torch.randn(5)
    neuron_compile.reset_stats()
    torch.compile(f, backend="neuron", options={"model_name": "a"})(x)
    torch.compile(f, backend="neuron", options={"model_name": "b"})(x)
    assert neuron_compile.stats()["graphs"] == 2
    torch.compile(f, backend="neuron", options={"model_name": "b"})(x)
    assert neuron_compile.stats()["graphs"] == 2


@pytest.mark.parametrize(
    "pending", [torch.conj, torch._neg_view, lambda x: x.conj().imag], ids=["conj", "neg", "both"]
)
def test_conjugation_and_negation_still_to_be_done(pending) -> None:
    compiled = torch.compile(lambda x: x * 2, backend="neuron", dynamic=True)
    for n in (3, 5, 4):
        x = pending(torch.randn(n, dtype=torch.complex64))
        torch.testing.assert_close(compiled(x), x * 2)


def _rows(x):
    return x.fill_(1)[:, : x.size(0) - 4]


def _columns_of_a_part(x):
    x[0].add_(1)
    return x[1 : x.size(0) - 4].t().unsqueeze(0)


def _one_of_several(x):
    return x.add_(1).split(x.size(1) // 2, 1)[1]


def _changed_through_a_view(x):
    y = x.t().add_(1)
    return y[1 : x.size(0) - 3], x[: x.size(1) - 2], x


def _whole(x):
    return x.mul_(2).view(x.size(0), -1)


def _beside_a_result(x):
    x.mul_(2)
    return x[x.size(0) - 3 :], x + 1


def _at_an_absolute_position(x):
    return x.add_(1).as_strided((x.size(0) - 5, 2), (1, 9), 13)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("trained", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(
    "f",
    [
        _rows,
        _columns_of_a_part,
        _changed_through_a_view,
        _whole,
        _beside_a_result,
        _at_an_absolute_position,
    ],
)
def test_views_of_a_changed_input_lie_on_the_input(f, trained: bool) -> None:
    _assert_lies_on_the_input(f, trained=trained)


def test_one_of_several_views_of_a_changed_input_lies_on_the_input() -> None:
    """For inference: AOTAutograd has what autograd knows as one of several views copied."""
    _assert_lies_on_the_input(_one_of_several, trained=False)


def _assert_lies_on_the_input(f, *, trained: bool) -> None:
    """The input has gaps and begins in the middle of its storage; its new value does neither."""
    compiled = torch.compile(f, backend="neuron", dynamic=True)
    for n in (7, 8):
        first, last = (torch.arange(9.0 * (n + 2)).view(n + 2, 9) for _ in range(2))
        theirs = (first.requires_grad_(trained) * 1)[1:-1, 2:8]
        ours = (last.requires_grad_(trained) * 1)[1:-1, 2:8]
        expected, found = _as_tuple(f(theirs)), _as_tuple(compiled(ours))
        assert torch.equal(ours, theirs)
        for a, b in zip(found, expected, strict=True):
            assert torch.equal(a, b)
            assert (a.stride(), a.storage_offset()) == (b.stride(), b.storage_offset())
            assert a.requires_grad == b.requires_grad
            shared = a.untyped_storage().data_ptr() == ours.untyped_storage().data_ptr()
            assert shared == (b.untyped_storage().data_ptr() == theirs.untyped_storage().data_ptr())
        if trained:
            sum(y.square().sum() for y in expected).backward()
            sum(y.square().sum() for y in found).backward()
            assert torch.equal(last.grad, first.grad)


def _as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def apart(n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    a = torch.arange(float(n))
    return a, torch.arange(float(n)), a


def overlapping(n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    base = torch.arange(float(n + 2))
    return base[:n], base[2:], base


def lagged(n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    base = torch.arange(float(n + 1))
    return base[1:], base[:n], base


@pytest.mark.parametrize(
    "calls",
    [
        [(apart, 5), (overlapping, 5), (overlapping, 6), (apart, 7)],
        [(overlapping, 5), (apart, 5), (overlapping, 6), (lagged, 6)],
        [(apart, 5), (apart, 6), (lagged, 7), (overlapping, 7)],
    ],
)
def test_arguments_overlap_in_one_call_and_not_in_another(calls) -> None:
    def f(a, b, n):
        a.add_(n)
        return b * a.shape[0]

    torch._dynamo.reset()
    compiled = torch.compile(f, backend="neuron", dynamic=True)
    for number, (make, size) in enumerate(calls):
        a, b, base = make(size)
        x, y, ours = make(size)
        torch.testing.assert_close(compiled(x, y, number + 2), f(a, b, number + 2), rtol=0, atol=0)
        torch.testing.assert_close(ours, base, rtol=0, atol=0)
