"""Gradients, grad modes, hooks, autocast: T101-T109 of the list of public reports."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F

import neuron_compile


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))


def gradients(call, module: torch.nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    module.zero_grad()
    call(x).square().sum().backward()
    return {name: p.grad.clone() for name, p in module.named_parameters()}


def test_gradients_equal_eager() -> None:  # T102: the backward graph is compiled too
    theirs, ours = model(), model()
    x = torch.randn(5, 4)
    neuron_compile.reset_stats()
    torch.testing.assert_close(
        gradients(torch.compile(ours, backend="neuron"), ours, x), gradients(theirs, theirs, x)
    )
    assert neuron_compile.stats()["graphs"] == 2


def test_parameters_are_arguments_not_constants() -> None:
    ours = model()
    compiled = torch.compile(ours, backend="neuron")
    x = torch.randn(5, 4)
    compiled(x)
    neuron_compile.reset_stats()
    with torch.no_grad():
        for p in ours.parameters():
            p.mul_(0.5)
    torch.testing.assert_close(compiled(x), ours(x))
    assert neuron_compile.stats()["graphs"] == 0


def test_training_steps_follow_eager() -> None:
    losses = []
    for compile_it in (False, True):
        module = model()
        call = torch.compile(module, backend="neuron") if compile_it else module
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
        steps = []
        for step in range(5):
            x = torch.full((3, 4), float(step))
            loss = call(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps.append(loss.item())
        losses.append(steps)
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert losses[1][-1] != losses[1][0]


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam"])
def test_compiled_optimizer_follows_eager(name: str, foreach: bool) -> None:
    trained = []
    for compile_it in (False, True):
        module = model()
        settings = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {}
        optimizer = getattr(torch.optim, name)(
            module.parameters(), lr=0.01, weight_decay=0.1, foreach=foreach, **settings
        )
        step = torch.compile(optimizer.step, backend="neuron") if compile_it else optimizer.step
        for number in range(3):
            optimizer.zero_grad()
            module(torch.full((3, 4), float(number + 1))).square().mean().backward()
            step()
        trained.append(list(module.parameters()))
    torch.testing.assert_close(trained[1], trained[0], rtol=1e-4, atol=1e-5)


def test_retain_grad_and_hooks_added_after_compile() -> None:  # T101
    def run(call, module):
        x = torch.ones(5, 4, requires_grad=True)
        y = call(x)
        y.retain_grad()
        seen = []
        y.register_hook(lambda g: seen.append(g.clone()))
        y.square().sum().backward()
        return [y.grad, *seen, x.grad]

    theirs, ours = model(), model()
    compiled = torch.compile(ours, backend="neuron")
    compiled(torch.ones(5, 4, requires_grad=True))
    torch.testing.assert_close(run(compiled, ours), run(theirs, theirs))


def test_module_backward_hook_added_after_compile() -> None:  # T101
    def run(call, module):
        seen = []
        handle = module.register_full_backward_hook(
            lambda _m, g_in, g_out: seen.append(g_out[0].clone())
        )
        call(torch.ones(5, 4, requires_grad=True)).sum().backward()
        handle.remove()
        return seen

    theirs, ours = model(), model()
    compiled = torch.compile(ours, backend="neuron")
    compiled(torch.ones(5, 4))
    expected = run(theirs, theirs)
    assert len(expected) == 1
    torch.testing.assert_close(run(compiled, ours), expected)


def test_first_call_without_grad_then_with() -> None:  # T104
    module = model()
    compiled = torch.compile(module, backend="neuron")
    x = torch.randn(5, 4)
    with torch.no_grad():
        assert not compiled(x).requires_grad
    with torch.inference_mode():
        assert compiled(x).is_inference()
    y = compiled(x)
    assert y.requires_grad
    theirs = model()
    torch.testing.assert_close(gradients(compiled, module, x), gradients(theirs, theirs, x))
    with torch.no_grad(), torch.enable_grad():
        assert compiled(x).requires_grad


def test_enable_grad_inside_no_grad_inside_the_graph() -> None:  # T104
    def f(x):
        with torch.no_grad():
            a = x * 2
            with torch.enable_grad():
                b = x * 3
        return a, b

    x = torch.ones(3, requires_grad=True)
    a, b = torch.compile(f, backend="neuron")(x)
    assert not a.requires_grad
    assert b.requires_grad
    b.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0, 3.0]


def test_requires_grad_flipped_on_an_input() -> None:  # T104
    compiled = torch.compile(lambda x: (x * x).sum(), backend="neuron")
    x = torch.arange(3.0)
    assert not compiled(x).requires_grad
    x.requires_grad_()
    compiled(x).backward()
    assert x.grad.tolist() == [0.0, 2.0, 4.0]
    x.requires_grad_(False)
    assert not compiled(x).requires_grad


def test_softmax_gradient() -> None:  # T106
    def run(call):
        torch.manual_seed(0)
        x = torch.randn(3, 7, requires_grad=True)
        weights = torch.randn(3, 7)
        (call(x) * weights).sum().backward()
        return x.grad

    def f(x):
        return F.softmax(x, -1)

    torch.testing.assert_close(run(torch.compile(f, backend="neuron")), run(f))


def test_backward_twice_with_retain_graph() -> None:  # T108: buffers are not donated
    x = torch.arange(3.0, requires_grad=True)
    y = torch.compile(lambda x: x.sin().exp().sum(), backend="neuron")(x)
    y.backward(retain_graph=True)
    once = x.grad.clone()
    y.backward()
    torch.testing.assert_close(x.grad, 2 * once)


def test_change_of_a_saved_tensor_is_noticed() -> None:
    x = torch.arange(3.0, requires_grad=True)
    y = torch.compile(lambda x: x.exp(), backend="neuron")(x)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_change_of_a_view_of_a_saved_tensor_does_not_reach_it() -> None:
    def f(x):
        return (x @ x).tanh().t()  # too dear to compute twice, so it is saved

    def gradient(call, change):
        x = torch.full((3, 3), 0.1, requires_grad=True)
        y = call(x)
        if change:
            y.add_(1)
        y.sum().backward()
        return x.grad

    # Eager raises; other backends give wrong gradients; ours are those of the unchanged result.
    compiled = torch.compile(f, backend="neuron")
    torch.testing.assert_close(gradient(compiled, False), gradient(f, False))
    torch.testing.assert_close(gradient(compiled, True), gradient(f, False))


def test_gradient_accumulates() -> None:
    x = torch.arange(3.0, requires_grad=True)
    compiled = torch.compile(lambda x: (x * 3).sum(), backend="neuron")
    compiled(x).backward()
    compiled(x).backward()
    assert x.grad.tolist() == [6.0, 6.0, 6.0]


def test_unused_output_has_no_gradient_to_give() -> None:
    x = torch.arange(3.0, requires_grad=True)
    a, _b = torch.compile(lambda x: (x * 3, x.exp()), backend="neuron")(x)
    a.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0, 3.0]


@pytest.mark.parametrize("dynamic", [None, True])
def test_autocast_state_is_guarded(dynamic) -> None:  # T109
    module = torch.nn.Linear(4, 4)
    compiled = torch.compile(module, backend="neuron", dynamic=dynamic)
    x = torch.randn(3, 4)
    assert compiled(x).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = compiled(x)
        expected = module(x)
    assert inside.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(inside, expected, rtol=2e-2, atol=2e-2)
    assert compiled(x).dtype == torch.float32


# Dynamo looks at the intermediate tensor, and torch warns about that.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_graph_break_in_the_middle() -> None:
    def f(x):
        y = x * 2
        torch._dynamo.graph_break()
        return y.sin()

    x = torch.randn(4, requires_grad=True)
    y = torch.compile(f, backend="neuron")(x)
    torch.testing.assert_close(y, f(x))
    y.sum().backward()
    torch.testing.assert_close(x.grad, 2 * (2 * x).cos())
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(f, backend="neuron", fullgraph=True)(x)


def test_every_way_to_name_the_backend() -> None:
    def f(x):
        return x * 2

    x = torch.ones(3)

    @torch.compile(backend="neuron")
    def decorated(x):
        return f(x)

    module = torch.nn.Linear(3, 3)
    module.compile(backend="neuron")
    assert torch.equal(decorated(x), 2 * x)
    torch.testing.assert_close(module(x), F.linear(x, module.weight, module.bias))
    assert "neuron" in torch._dynamo.list_backends()
    neuron_compile.reset_stats()
    torch.compiler.set_default_backend("neuron")
    try:
        assert torch.equal(torch.compile(lambda x: x * 4)(x), 4 * x)
    finally:
        torch.compiler.set_default_backend("inductor")
    assert neuron_compile.stats()["graphs"] == 1


def test_several_models_in_several_threads() -> None:
    modules = [torch.nn.Linear(4, width) for width in (2, 3, 5, 7)]
    compiled = [torch.compile(m, backend="neuron") for m in modules]
    failures = []

    def work(k: int) -> None:
        for step in range(6):
            x = torch.full((step % 3 + 1, 4), float(step))
            try:
                torch.testing.assert_close(compiled[k](x), modules[k](x))
            except AssertionError as error:
                failures.append(error)

    threads = [threading.Thread(target=work, args=(k % 4,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_checkpointed_block() -> None:
    from torch.utils.checkpoint import checkpoint

    def run(call):
        x = torch.linspace(0, 1, 5, requires_grad=True)
        call(x).sum().backward()
        return x.grad

    def f(x):
        return checkpoint(lambda t: t.sin().exp(), x, use_reentrant=False)

    torch.testing.assert_close(run(torch.compile(f, backend="neuron")), run(f))
