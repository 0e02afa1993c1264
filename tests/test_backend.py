"""The function Dynamo calls: what reaches the compiler, and what comes back."""

from __future__ import annotations

from types import MappingProxyType

import pytest
import torch

import neuron_compile
from neuron_compile import compiler
from neuron_compile.backend import neuron
from tests.doubles import EagerProgram


@pytest.fixture
def jobs(monkeypatch) -> list[compiler.Job]:
    """Every job that reaches the compiler; the stand-in answers."""
    seen: list[compiler.Job] = []

    def answer(job: compiler.Job) -> EagerProgram:
        seen.append(job)
        return EagerProgram(job.graph)

    monkeypatch.setattr(compiler, "executable", answer)
    return seen


def test_the_entry_point_is_this_function() -> None:
    assert neuron_compile.neuron is neuron
    assert torch._dynamo.lookup_backend("neuron") is neuron


def test_options_reach_the_job_and_are_not_written_to(jobs) -> None:
    given = MappingProxyType({"model_name": "m"})
    torch.compile(lambda x: x + 1, backend="neuron", options=given)(torch.ones(2))
    assert [job.name for job in jobs] == ["m"]
    assert [job.kind for job in jobs] == ["inference"]


def test_training_makes_a_forward_and_a_backward_graph(jobs) -> None:
    x = torch.ones(2, requires_grad=True)
    torch.compile(lambda x: x.sin(), backend="neuron")(x).sum().backward()
    assert [job.kind for job in jobs] == ["forward", "backward"]
    torch.testing.assert_close(x.grad, x.detach().cos())


def test_graphs_hold_tensors_only_and_each_output_once(jobs) -> None:
    def f(x, n):
        y = x * n
        return y, y, x, None, n, y.t()

    torch.compile(f, backend="neuron", dynamic=True)(torch.ones(2, 3), 4)
    [job] = jobs
    for node in job.graph.graph.nodes:
        if node.op != "output":
            assert isinstance(node.meta["val"], torch.Tensor)
    outputs = job.graph.graph.output_node().args[0]
    assert len(outputs) == 1


def test_strides_of_the_outputs_are_part_of_the_key(jobs) -> None:
    torch.compile(lambda x: (x + 1).t(), backend="neuron")(torch.ones(2, 3))
    assert jobs[0].aot["output_strides"] == ((1, 3),)


def test_graph_without_computation_is_not_compiled(jobs) -> None:
    x = torch.ones(2, 3)
    y = torch.compile(lambda x: (x.t(), 3), backend="neuron")(x)[0]
    assert jobs == []
    assert y.data_ptr() == x.data_ptr()


def test_only_graphs_that_change_inputs_pay_for_the_aliasing_check(jobs, monkeypatch) -> None:
    import neuron_compile.backend as backend

    made = []

    class Recorder(backend.AliasGuard):
        def __init__(self, compiled, changed, recompile, **more) -> None:
            made.append(changed)
            super().__init__(compiled, changed, recompile, **more)

    monkeypatch.setattr(backend, "AliasGuard", Recorder)
    torch.compile(lambda x, y: x + y, backend="neuron")(torch.ones(2), torch.ones(2))
    assert made == []
    torch.compile(lambda x, y: y.add_(x), backend="neuron")(torch.ones(2), torch.ones(2))
    assert [len(changed) for changed in made] == [1]


def test_variable_that_makes_no_sense_is_named(jobs, monkeypatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_COMPILE_ONLY", "perhaps")
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="TORCH_NEURONX_COMPILE_ONLY"):
        torch.compile(lambda x: x + 1, backend="neuron")(torch.ones(2))


def test_called_without_dynamo(jobs) -> None:
    graph = torch.fx.symbolic_trace(lambda x, y: (x * y, x))
    compiled = neuron(graph, [torch.ones(3), torch.full((3,), 2.0)])
    product, same = compiled(torch.ones(3), torch.full((3,), 2.0))
    assert torch.equal(product, torch.full((3,), 2.0))
    assert torch.equal(same, torch.ones(3))


def test_error_at_run_time_leaves_inputs_as_they_were(monkeypatch) -> None:
    programs = []

    def answer(job: compiler.Job) -> EagerProgram:
        programs.append(EagerProgram(job.graph))
        return programs[-1]

    monkeypatch.setattr(compiler, "executable", answer)
    compiled = torch.compile(lambda x: x.add_(1), backend="neuron")
    x = torch.zeros(3)
    compiled(x)
    programs[0].failure = neuron_compile.ExecutionError("broken")
    with pytest.raises(neuron_compile.ExecutionError, match="broken"):
        compiled(x)
    assert torch.equal(x, torch.ones(3))


def test_unsupported_operators_are_all_listed_with_their_lines() -> None:
    def f(x):
        a = torch.linalg.eigvals(x)
        b = torch.linalg.svdvals(x)
        return a.real.sum() + b.sum()

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as raised:
        torch.compile(f, backend="neuron")(torch.eye(3))
    text = str(raised.value)
    assert "operators cannot be lowered" in text
    assert "aten.linalg_eig" in text
    assert "aten._linalg_svd" in text
    assert text.count("test_backend.py") >= 2
    assert "what to do" in text


def test_unsupported_operator_with_an_effect_beside_other_results_is_named() -> None:
    """Its token is one more output, which must not be taken for the user's first."""

    def f(x):
        return torch.linalg.inv(x), torch.kron(x, x), x[0]

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=r"aten\.linalg_inv_ex"):
        torch.compile(f, backend="neuron")(torch.eye(3))
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=r"aten\.linalg_inv_ex"):
        torch.compile(f, backend="neuron")(torch.eye(3).requires_grad_())


def test_an_unsupported_operator_can_be_left_to_pytorch() -> None:
    """What the error advises."""

    @torch.compiler.disable
    def airy(x):
        return torch.special.airy_ai(x)

    def f(x):
        return airy(x * 2) + 1

    x = torch.linspace(-1, 1, 5)
    torch.testing.assert_close(torch.compile(f, backend="neuron")(x), f(x))
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=r"torch\.compiler\.disable"):
        torch.compile(lambda x: torch.special.airy_ai(x * 2), backend="neuron")(x)
