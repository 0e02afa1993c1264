"""Mutation, aliasing and the order of effects: T001-T028 of the list of public reports."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.semantics import assert_same_effect, both_raise


def test_read_through_bitcast_view_comes_before_the_store() -> None:  # T001
    def f(x):
        y = x.view(torch.int32) * 2
        y.sub_(-4)
        x[:, 2:5] = 2
        return y.view(torch.int64)

    assert_same_effect(f, lambda: [torch.arange(-12, 12).reshape(4, 6)])


def test_slice_scatter_keeps_what_its_input_was() -> None:  # T003
    def f(x, src):
        y = torch.slice_scatter(x, src[1:3], 0, 1, 3)
        x.zero_()
        return y

    assert_same_effect(f, lambda: [torch.randn(5, 3), torch.randn(4, 3)])


def test_diagonal_scatter_of_itself_keeps_what_it_was() -> None:  # T003
    def f(x):
        y = torch.diagonal_scatter(x, x.diagonal())
        x.fill_(2)
        return y

    assert_same_effect(f, lambda: [torch.arange(16.0).reshape(4, 4)])


def test_clone_is_a_copy_although_its_input_changes_later() -> None:  # T003
    def f(x):
        y = x.clone()
        x.clamp_(0, 1)
        return y

    assert_same_effect(f, lambda: [torch.arange(-3.0, 3.0)])


def test_clone_returned_beside_an_unchanged_input_is_another_tensor() -> None:
    def f(x):
        return x.clone(), x

    x = torch.randn(3)
    clone, same = torch.compile(f, backend="neuron")(x)
    assert same is x
    clone.add_(1)
    assert not torch.equal(clone, x)


def test_conversion_to_the_same_dtype_with_copy_is_another_tensor() -> None:
    x = torch.randn(3)
    y = torch.compile(lambda x: x.to(torch.float32, copy=True), backend="neuron")(x)
    assert y.data_ptr() != x.data_ptr()
    assert torch.equal(x, y)


def test_overlapping_arguments_are_specialised_anew() -> None:  # T005
    def f(x, y):
        x.mul_(2)
        return x + y

    compiled = torch.compile(f, backend="neuron")
    for overlap in (False, True, False):
        results = []
        for call in (f, compiled):
            base = torch.arange(6.0)
            other = base[2:6] if overlap else torch.arange(4.0)
            results.append((call(base[:4], other), base, other))
        for theirs, ours in zip(*results, strict=True):
            assert torch.equal(theirs, ours)


def test_zero_dim_result_is_read_before_the_update() -> None:  # T006
    def f(x):
        y = torch.log(x)
        x.log_()
        return y

    assert_same_effect(f, lambda: [torch.tensor(3.0)])


def test_the_users_graph_module_is_not_changed() -> None:  # T007
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        def forward(self, x):
            return {"y": self.linear(x), "x": x.t()}

    traced = torch.fx.symbolic_trace(Model())
    before = traced.code, str(traced.graph)
    x = torch.randn(3, 3)
    expected = traced(x)
    result = torch.compile(traced, backend="neuron")(x)
    assert (traced.code, str(traced.graph)) == before
    torch.testing.assert_close(result, expected)


def test_inactive_dropout_is_its_input_itself() -> None:  # T008
    def f(x):
        y = F.dropout(x, 0.5, training=False)
        y += y
        return y

    result = assert_same_effect(f, lambda: [torch.arange(4.0)])
    assert torch.equal(result, 2 * torch.arange(4.0))


def test_write_to_an_expanded_tensor_is_refused_as_in_eager() -> None:  # T010
    def f(x):
        x.expand(3, 6).add_(1)
        return x * 1

    error = both_raise(f, lambda: [torch.arange(6.0)], "single memory location")
    assert "clone()" in str(error)
    assert "test_semantics_mutation.py" in str(error)


@pytest.mark.parametrize(
    "expand",
    [lambda x: x.expand(3, -1), lambda x: x[:1].expand(x.shape[0])],
    ids=["beside symbolic sizes", "to a symbolic size"],
)
def test_write_to_an_expanded_tensor_is_refused_with_symbolic_sizes_too(expand) -> None:  # T010
    def f(x):
        expand(x).add_(1)
        return x * 1

    for compiled in (f, torch.compile(f, backend="neuron", dynamic=True)):
        with pytest.raises(Exception, match="single memory location"):
            compiled(torch.arange(6.0))


def test_filling_an_expanded_tensor_of_symbolic_size_is_allowed() -> None:  # T010
    def f(x):
        y = x.expand(3, -1)
        y.zero_()
        return x + 1, y * 2

    compiled = torch.compile(f, backend="neuron", dynamic=True)
    for size in (6, 9):
        x = torch.arange(float(size))
        one, zero = compiled(x)
        assert torch.equal(x, torch.zeros(size))
        assert torch.equal(one, torch.ones(size))
        assert torch.equal(zero, torch.zeros(3, size))


@pytest.mark.parametrize(
    "write",
    [lambda x: x.as_strided((3, 4), (1, 1)).mul_(2), lambda x: x.unfold(0, 3, 1).sub_(x[0])],
    ids=["as_strided", "unfold"],
)
def test_write_whose_result_depends_on_its_order_is_refused(write) -> None:  # T010
    def f(x):
        write(x)
        return x * 1

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="single memory location"):
        torch.compile(f, backend="neuron")(torch.arange(8.0))


def test_write_through_interleaved_strides_is_no_overlap() -> None:
    def f(x):
        x.as_strided((3, 2), (2, 3)).mul_(2)
        return x * 1

    assert_same_effect(f, lambda: [torch.arange(8.0)])


@pytest.mark.parametrize(
    "fill", [lambda y: y.fill_(5), lambda y: y.zero_()], ids=["fill_", "zero_"]
)
def test_filling_an_expanded_tensor_is_allowed(fill) -> None:  # T010: eager allows it
    def f(x):
        y = x.expand(3, 2, 6)
        fill(y)
        return x + 1, y * 2

    assert_same_effect(f, lambda: [torch.arange(6.0)])


def test_update_through_transpose_keeps_strides() -> None:  # T011
    def f(x):
        y = x.t()
        y.mul_(2)
        return y

    result = assert_same_effect(f, lambda: [torch.arange(6.0).reshape(2, 3)])
    assert result.stride() == (1, 3)


def test_write_through_expanded_tensor_hits_the_base_once() -> None:  # T012
    def f(x):
        y = x.expand(3, 6)
        y[0, 0] = 50
        return y * 1

    assert_same_effect(f, lambda: [torch.arange(6)])


@pytest.mark.parametrize(
    "op",
    [
        lambda x, i: x.index_fill(0, i, -1.0),
        lambda x, i: x.index_add(0, i, torch.ones(2, 4)),
        lambda x, i: x.index_copy(0, i, torch.ones(2, 4)),
        lambda x, i: x.put(i, torch.ones(2)),
    ],
    ids=["index_fill", "index_add", "index_copy", "put"],
)
def test_out_of_place_update_of_an_expanded_tensor(op) -> None:  # T015
    assert_same_effect(
        lambda x, i: op(x, i), lambda: [torch.arange(4.0).expand(3, 4), torch.tensor([0, 2])]
    )


def test_folded_constant_is_fresh_in_every_call() -> None:  # T019
    compiled = torch.compile(lambda: torch.zeros(4), backend="neuron")
    compiled().add_(1)
    assert torch.equal(compiled(), torch.zeros(4))


def test_literal_tensor_is_fresh_in_every_call() -> None:  # T019
    compiled = torch.compile(lambda x: (torch.tensor([1.0, 2.0]), x + 1), backend="neuron")
    compiled(torch.ones(2))[0].add_(1)
    assert torch.equal(compiled(torch.ones(2))[0], torch.tensor([1.0, 2.0]))


def test_index_copy_on_one_of_several_views() -> None:  # T022
    def f(cache, at, new):
        k, v = cache.unbind(0)
        k.index_copy_(0, at, new)
        return k.sum(), v.sum(), cache * 1

    assert_same_effect(
        f, lambda: [torch.arange(24.0).reshape(2, 4, 3), torch.tensor([1, 3]), torch.zeros(2, 3)]
    )


def test_cache_updated_in_compiled_code_is_read_by_eager() -> None:  # T022
    cache = torch.zeros(2, 4, 3)
    k, v = cache.unbind(0)
    step = torch.compile(lambda k, at, new: k.index_copy_(0, at, new), backend="neuron")
    step(k, torch.tensor([2]), torch.ones(1, 3))
    assert cache[0, 2].tolist() == [1.0, 1.0, 1.0]
    assert cache.sum() == 3
    assert v.sum() == 0


def test_same_tensor_as_two_arguments_one_changed() -> None:  # T027
    def f(x, y):
        x.add_(1)
        return x * y

    def make():
        x = torch.arange(4.0)
        return [x, x]

    assert_same_effect(f, make)


def test_same_tensor_returned_twice_is_one_tensor() -> None:  # T027
    def f(x):
        y = x + 1
        return y, y

    a, b = assert_same_effect(f, lambda: [torch.arange(4.0)])
    assert a is b


def test_input_view_none_and_number_returned() -> None:  # T027
    def f(x):
        return x, x.view(-1), None, 7, x.shape[0], True

    x = torch.arange(4.0).reshape(2, 2)
    same, flat, *_ = torch.compile(f, backend="neuron")(x)
    assert same is x
    assert flat.data_ptr() == x.data_ptr()
    assert_same_effect(f, lambda: [torch.arange(4.0).reshape(2, 2)])


def test_view_of_an_input_in_the_middle_of_its_storage() -> None:
    base = torch.arange(12.0)
    x = base[4:10]
    view = torch.compile(lambda x: x.view(2, 3).t()[1:], backend="neuron")(x)
    assert view.storage_offset() == 5
    view.zero_()
    assert base.tolist() == [0, 1, 2, 3, 4, 0, 0, 7, 0, 0, 10, 11]


def test_views_of_a_result_share_its_memory() -> None:
    def f(x):
        y = x + 1
        return y, y.t(), y[1:], y.expand(2, 3, 3)

    whole, transposed, tail, expanded = assert_same_effect(
        f, lambda: [torch.arange(9.0).reshape(3, 3)]
    )
    whole[1, 2] = -1
    assert transposed[2, 1] == tail[0, 2] == expanded[1, 1, 2] == -1


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_returned_view_may_be_changed_in_place(requires_grad: bool) -> None:
    def f(x):
        return (x * 2).t()

    x = torch.ones(2, 3, requires_grad=requires_grad)
    y = torch.compile(f, backend="neuron")(x)
    y.mul_(3)
    assert torch.equal(y, torch.full((3, 2), 6.0))


def test_two_inputs_exchanged_in_place() -> None:
    def f(x, y):
        t = x.clone()
        x.copy_(y)
        y.copy_(t)

    assert_same_effect(f, lambda: [torch.arange(3.0), torch.arange(3.0, 6.0)])


def test_buffer_captured_by_the_graph_follows_changes() -> None:  # T028
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("buf", torch.ones(3))

        def forward(self, x):
            return self.buf + x

    model = Model()
    compiled = torch.compile(model, backend="neuron")
    x = torch.zeros(3)
    assert torch.equal(compiled(x), torch.ones(3))
    model.buf.mul_(5)
    assert torch.equal(compiled(x), torch.full((3,), 5.0))


def test_buffer_of_the_model_is_updated() -> None:
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

        def forward(self, x):
            self.seen += 1
            return x * self.seen

    model = Counter()
    compiled = torch.compile(model, backend="neuron")
    results = [compiled(torch.ones(2)).tolist() for _ in range(3)]
    assert results == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
    assert model.seen == 3


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_updates_its_statistics(training: bool) -> None:
    torch.manual_seed(0)
    theirs = torch.nn.BatchNorm1d(4).train(training)
    ours = torch.nn.BatchNorm1d(4).train(training)
    compiled = torch.compile(ours, backend="neuron")
    for _ in range(2):
        x = torch.randn(8, 4)
        torch.testing.assert_close(compiled(x), theirs(x))
    torch.testing.assert_close(dict(ours.named_buffers()), dict(theirs.named_buffers()))


def test_custom_operator_that_changes_two_views_of_one_base() -> None:  # T017
    @torch.library.custom_op("neuron_compile_test::bump", mutates_args={"a", "b"})
    def bump(a: torch.Tensor, b: torch.Tensor) -> None:
        a.add_(1)
        b.add_(2)

    def f(x):
        bump(x[0], x[1])
        return x * 1

    # An opaque operator cannot be in a NEFF yet: it must be refused by name, not dropped.
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="auto_functionalized"):
        torch.compile(f, backend="neuron")(torch.zeros(2, 3))


def test_custom_operator_whose_result_aliases_its_input() -> None:  # T018
    @torch.library.custom_op("neuron_compile_test::same", mutates_args=())
    def same(a: torch.Tensor) -> torch.Tensor:
        return a

    @same.register_fake
    def _(a):
        return torch.empty_like(a)

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="same"):
        torch.compile(lambda x: same(x) + 1, backend="neuron")(torch.zeros(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
def test_in_place_sums_with_a_factor(dtype: torch.dtype) -> None:
    """Dynamo makes one operator of its own of them, `prims.fma`."""

    def f(x, y, z):
        x.addcmul_(y, z, value=2)
        y[1].addcmul_(x[0], z[2], value=-3)
        if dtype.is_floating_point:
            x.addcdiv_(y, z, value=-0.5)
        y.add_(z, alpha=torch.tensor(3, dtype=dtype))

    def make():
        return [torch.arange(1, 13).reshape(3, 4).to(dtype) * k for k in (1, 2, 3)]

    assert_same_effect(f, make)


def test_an_in_place_sum_with_a_factor_has_gradients() -> None:
    def f(x, y, z, factor):
        return x.clone().addcmul_(y, z, value=2).add_(y, alpha=factor).addcdiv_(y, z, value=0.5)

    def gradients(call):
        torch.manual_seed(0)
        leaves = [torch.randn(3, 1), torch.randn(3, 4).abs() + 1, torch.randn(4).abs() + 1]
        leaves = [leaf.requires_grad_() for leaf in (leaves[0].expand(3, 4).clone(), *leaves[1:])]
        call(*leaves, torch.tensor(0.25)).square().sum().backward()
        return [leaf.grad for leaf in leaves]

    torch.testing.assert_close(gradients(torch.compile(f, backend="neuron")), gradients(f))
