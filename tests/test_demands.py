"""Indices out of range and division by zero are errors as in eager, and nothing is written."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import neuron_compile
from neuron_compile import shim
from neuron_compile.errors import ExecutionError, IndexRangeError
from tests.test_call_plan import planned

W = torch.arange(40.0).reshape(10, 4)


def assigned(i, w):
    w = w.clone()
    w[i] = 7.0
    return w


def two_indices(i, w):
    return w[i, torch.zeros_like(i)]


# Each takes indices of ten rows; does it take -1?
USES: dict[str, tuple[Callable[..., torch.Tensor], bool]] = {
    "embedding": (F.embedding, False),
    "embedding bag": (lambda i, w: F.embedding_bag(i[None], w), False),
    "index": (lambda i, w: w[i], True),
    "two indices": (two_indices, True),
    "assigned": (assigned, True),
    "index_put": (lambda i, w: w.index_put((i,), torch.ones(3, 4), accumulate=True), True),
    "index_select": (lambda i, w: w.index_select(0, i), False),
    "index_add": (lambda i, w: w.index_add(0, i, w[:3]), False),
    "index_copy": (lambda i, w: w.index_copy(0, i, w[:3]), False),
    "index_fill": (lambda i, w: w.index_fill(0, i, 1.0), True),
    "gather": (lambda i, w: w.gather(0, i[:, None]), False),
    "scatter": (lambda i, w: w.scatter(0, i[:, None], w[:3, :1]), False),
    "scatter of a number": (lambda i, w: w.scatter(0, i[:, None], 2.0), False),
    "scatter_add": (lambda i, w: w.scatter_add(0, i[:, None], w[:3, :1]), False),
    "scatter_reduce": (lambda i, w: w.scatter_reduce(0, i[:, None], w[:3, :1], "amax"), False),
    "take": (lambda i, w: w.t()[0].contiguous().take(i), True),
    "put": (lambda i, w: w.t()[0].contiguous().put(i, torch.ones(3)), True),
    "cross entropy": (lambda i, w: F.cross_entropy(w.t()[:3], i), False),
    "labels of places": (lambda i, w: F.nll_loss(w.view(1, 10, 4)[..., :3], i[None]), False),
}  # fmt: skip


def compiled(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    torch._dynamo.reset()
    return torch.compile(function, backend="neuron")


@pytest.mark.parametrize("use", USES)
def test_what_eager_refuses_is_refused(use: str) -> None:
    function, from_the_end = USES[use]
    ours = compiled(function)
    for last in (9, 10, -1, -10, -11, 1 << 40):
        i = torch.tensor([2, 5, last])
        if 0 <= last < 10 or (from_the_end and -10 <= last < 0):
            torch.testing.assert_close(ours(i, W), function(i, W))
            continue
        with pytest.raises((IndexError, RuntimeError)):
            function(i, W)
        with pytest.raises(IndexRangeError, match="index out of range") as raised:
            ours(i, W)
        assert isinstance(raised.value, IndexError)
        assert isinstance(raised.value, RuntimeError)


DIVISIONS = {
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "of a number": lambda a, b: 7 % b,
    "fmod": lambda a, b: torch.fmod(a, b),
    "truncated": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floored": lambda a, b: torch.div(a, b, rounding_mode="floor"),
}


@pytest.mark.parametrize("name", DIVISIONS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
def test_integer_division_by_zero_is_refused(name: str, dtype: torch.dtype) -> None:
    function = DIVISIONS[name]
    ours = compiled(function)
    a, b = torch.tensor([7, 100], dtype=dtype), torch.tensor([3, 5], dtype=dtype)
    torch.testing.assert_close(ours(a, b), function(a, b), rtol=0, atol=0)
    zero = torch.tensor([3, 0], dtype=dtype)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        function(a, zero)
    with pytest.raises(ExecutionError, match="integer division by zero") as raised:
        ours(a, zero)
    assert "b (" in str(raised.value)
    assert "values from 0 to 3" in str(raised.value)


def test_floats_may_be_divided_by_zero() -> None:
    ours = compiled(lambda a, b: (a // b, a % b, a / b))
    ours(torch.ones(2), torch.zeros(2))
    ours(torch.ones(2, dtype=torch.int64), torch.zeros(2))
    assert checks_of(lambda a, b: (a / b,), I, I) == 0  # of integers, but a true division
    assert checks_of(lambda a, b: (a // (b.abs() + 1),), I.int(), I.int().clamp(0, 9)) == 1
    assert checks_of(lambda a, b: (a // (b % 7 + 1),), I, I) == 0
    assert checks_of(lambda a: (a[:0] // a[:1],), I) == 0


def test_the_message_says_what_where_and_which_values() -> None:
    with pytest.raises(IndexError) as raised:
        compiled(lambda tokens, table: F.embedding(tokens, table))(torch.tensor([[3, 12]]), W)
    said = str(raised.value)
    assert "aten.embedding.default takes 0 to 9" in said
    assert "tokens (int64[1, 2]) has values from 3 to 12" in said
    assert re.search(r"test_demands\.py:\d+", said)


def test_ignored_labels_are_no_error() -> None:
    def loss(labels):
        return F.cross_entropy(W[:3], labels, ignore_index=77)

    ours = compiled(loss)
    labels = torch.tensor([0, 77, 3])
    torch.testing.assert_close(ours(labels), loss(labels))
    with pytest.raises(IndexError, match="takes 0 to 3, or 77 to ignore one"):
        ours(torch.tensor([0, 76, 3]))


def test_training_is_checked_before_anything_is_returned() -> None:
    table = torch.nn.Parameter(W.clone())
    loss = compiled(lambda i, w: F.embedding(i, w).square().sum())
    loss(torch.tensor([1, 2]), table).backward()
    torch.testing.assert_close(table.grad[1], 2 * W[1])
    with pytest.raises(IndexError):
        loss(torch.tensor([1, 10]), table)


def write(cache, i, rows):
    cache.index_copy_(0, i, rows)
    return rows + 1


def add_then_write(cache, i, rows):
    cache.add_(1)
    return write(cache, i, rows)


def written_first(cache, i, rows):
    """The second index depends on what the first update wrote."""
    cache.index_copy_(0, i, rows)
    return W[cache[:, 0].long()]


@pytest.mark.parametrize("f", [write, add_then_write, written_first])
def test_a_refused_call_has_written_nothing(f) -> None:
    ours, rows = compiled(f), torch.full((2, 4), 8.0)
    cache = torch.zeros(5000, 4)
    ours(cache, torch.tensor([1, 4999]), rows)
    before = cache.clone()
    with pytest.raises(IndexError):
        ours(cache, torch.tensor([7, 5000]), rows)
    if f is written_first:
        with pytest.raises(IndexError):
            ours(cache, torch.tensor([1, 2]), rows + 9)
    torch.testing.assert_close(cache, before, rtol=0, atol=0)


def test_a_checked_update_is_still_written_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = shim.make_callable

    def watch(plan, program, *rest, **more):
        seen.append((len(plan.checks), program.neff.plan.in_place))
        return real(plan, program, *rest, **more)

    monkeypatch.setattr(shim, "make_callable", watch)
    compiled(write)(torch.zeros(5000, 4), torch.tensor([1, 2]), torch.ones(2, 4))
    [(checks, in_place)] = seen
    assert checks == 1
    assert len(in_place) == 1


def checks_of(function: Callable[..., object], *args: torch.Tensor) -> int:
    return len(planned(function, *args)[1].checks)


I = torch.tensor([1, 2, 3])


def test_one_question_is_asked_once() -> None:
    assert checks_of(lambda i, w: (F.embedding(i, w), F.embedding(i, 2 * w)), I, W) == 1
    assert checks_of(lambda i, w: (F.embedding(i, w), F.embedding(i, w[:5])), I, W) == 2


def test_indices_known_to_fit_cost_nothing() -> None:
    assert checks_of(lambda x: (x.gather(1, x.topk(2).indices),), W) == 0
    assert checks_of(lambda x: (x[torch.arange(10)],), W) == 0
    assert checks_of(lambda i, w: (w[i % 10],), I, W) == 0
    assert checks_of(lambda i, w: (w[i.clamp(0, 9)],), I, W) == 0
    assert checks_of(lambda x: (x.index_put((x > 3,), x.new_zeros(())),), W) == 0
    assert checks_of(lambda i, w: (w[:0][i[:0]],), I, W) == 0


def test_constant_indices_that_fit_are_known_to(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = shim.make_callable

    def watch(plan, *rest, **more):
        seen.append(plan.checks)
        return real(plan, *rest, **more)

    monkeypatch.setattr(shim, "make_callable", watch)
    places = [[0, 9], [3, 3]]
    result = compiled(lambda w: w[torch.tensor(places)])(W)
    torch.testing.assert_close(result, W[torch.tensor(places)])
    assert seen == [()]
    with pytest.raises(IndexError):
        compiled(lambda w: w[torch.tensor([0, 10])])(W)


class GradientAt(torch.autograd.Function):
    """Indexes in its backward alone."""

    @staticmethod
    def forward(ctx, x, i):
        ctx.save_for_backward(i)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (i,) = ctx.saved_tensors
        return g[i], None


def test_backward_graphs_are_checked_too() -> None:
    x = torch.ones(3, requires_grad=True)
    ours = compiled(lambda x, i: GradientAt.apply(x, i))
    ours(x, torch.tensor([0, 1, 2])).sum().backward()
    with pytest.raises(IndexError):
        ours(x, torch.tensor([0, 1, 9])).sum().backward()


@pytest.mark.parametrize("name", ["//", "%", "fmod"])
def test_a_divisor_is_looked_at_in_the_dtype_of_the_division(name: str) -> None:
    """256 is 0 in eight bits: a tensor without dimensions does not widen the result."""
    x, y = torch.tensor([1, 2], dtype=torch.int8), torch.tensor(256)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        DIVISIONS[name](x, y)
    with pytest.raises(ExecutionError, match="division by zero"):
        compiled(DIVISIONS[name])(x, y)


def test_rows_without_elements_may_be_any() -> None:
    def f(x, i):
        return x[i], x.index_add(0, i, x[:1])

    x, i = torch.zeros(3, 0), torch.tensor([100])
    for ours, theirs in zip(compiled(f)(x, i), f(x, i), strict=True):
        assert ours.shape == theirs.shape


def test_values_of_unusual_dtypes_are_named() -> None:
    x = torch.tensor([3], dtype=torch.int64)
    with pytest.raises(ExecutionError, match=r"uint16\[1\]\) has values from 0 to 0"):
        compiled(lambda x, y: x // y)(x, torch.tensor([0], dtype=torch.uint16))


def test_new_lengths_are_checked_too() -> None:
    ours = compiled(F.embedding)
    for length in (3, 5, 8):
        good = torch.arange(length)
        torch.testing.assert_close(ours(good, W), F.embedding(good, W))
        with pytest.raises(IndexError):
            ours(good + 8, W)


def test_a_neff_alone_refuses_and_returns_no_truth_values(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path))
    i = torch.tensor([1, 2])
    compiled(lambda i, w: F.embedding(i, w) + 1)(i, W)
    [path] = tmp_path.rglob("*.neff")
    program = neuron_compile.load(path)
    arrays = [i.numpy(), W.numpy()]
    if program.inputs[0].dtype != "int64":
        arrays.reverse()
    (result,) = program(*arrays)
    assert len(program.outputs) == 1
    assert (result == W[i].numpy() + 1).all()
    arrays = [a if a.dtype != "int64" else a + 9 for a in arrays]
    with pytest.raises(ExecutionError, match=r"index out of range: aten\.embedding"):
        program(*arrays)


def test_a_graph_that_returns_its_input_is_checked_too() -> None:
    def f(x, i, w):
        w[i]
        torch.ops.aten._assert_async.msg((x > 0).all(), "x must be positive")
        return x

    ours = compiled(f)
    x = torch.ones(3)
    assert ours(x, I, W) is x
    with pytest.raises(RuntimeError, match="x must be positive"):
        ours(-x, I, W)


def test_the_check_that_is_not_met_is_named_whatever_the_order() -> None:
    """An assertion about a late value stands first in the list, an index check runs first."""

    def f(i, w):
        late = F.embedding(i, w) @ w.t() @ w
        torch.ops.aten._assert_async.msg((late > -1e9).all(), "late must be large")
        return late

    ours = compiled(f)
    for _ in range(5):
        with pytest.raises(IndexError, match=r"aten\.embedding"):
            ours(torch.tensor([1, 99]), W)
    with pytest.raises(RuntimeError, match="late must be large"):
        ours(torch.tensor([9]), W - 1e6)


def test_indices_that_select_nothing_may_be_anything() -> None:
    def f(x, i, j):
        return x[i, j]

    i, j = torch.tensor([70]), torch.tensor([], dtype=torch.int64)
    torch.testing.assert_close(compiled(f)(W, i, j), f(W, i, j))


def test_repeated_indices_are_looked_at_once() -> None:
    graph, plan = planned(lambda i, s: (s.scatter_add(0, i[:, None].expand(3, 4), s[:3]),), I, W)
    assert len(plan.checks) == 1
    [bound] = [n for n in graph.graph.nodes if n.target is torch.ops.aten.lt.Scalar]
    assert bound.args[0].op == "placeholder"


def test_sampling_needs_no_check() -> None:
    def f(scores):
        best, places = scores.topk(4)
        drawn = torch.multinomial(best.softmax(-1), 1)
        return places.gather(-1, drawn)

    assert checks_of(f, W) == 0
    assert checks_of(lambda x: x[torch.searchsorted(x[0], x[1]).clamp(max=9)], W) == 0
