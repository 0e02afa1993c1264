"""What AOTAutograd says of a graph's outputs, turned into rules."""

from __future__ import annotations

import pytest
import torch

from neuron_compile import autograd
from neuron_compile.call_plan import OutputRule


@pytest.fixture
def rules(monkeypatch):
    """A function: compile with this backend's AOT set-up, return kind -> rules of the graphs."""

    def rules(function, *args, **options) -> dict[str, list[OutputRule]]:
        found: dict[str, list[OutputRule]] = {}

        def keep(graph, kind, facts):
            found[kind] = facts.rules(())

            def run(args):
                values = list(args)
                args.clear()
                return graph(*values)

            run._boxed_call = True
            return run

        def backend(graph, inputs):
            return autograd.compile_with_aot(graph, inputs, keep)

        torch._dynamo.reset()
        result = torch.compile(function, backend=backend, **options)(*args)
        if isinstance(result, torch.Tensor) and result.requires_grad:
            result.sum().backward()
        return found

    return rules


def test_inference_output_is_the_user_s_own(rules) -> None:
    found = rules(lambda x: x + 1, torch.ones(2, 3))
    assert found == {"inference": [OutputRule(stride=(3, 1), own_memory=True)]}


def test_mutated_input_comes_first_and_is_no_other_input_s_memory(rules) -> None:
    def f(x, y):
        x.copy_(y)
        return y + 1

    mutated, result = rules(f, torch.ones(2), torch.ones(2))["inference"]
    assert mutated == OutputRule(own_memory=True, changes=0)
    assert result.stride == (1,)


def test_tokens_of_operators_with_effects_come_before_all_other_outputs(rules) -> None:
    def f(x, y):
        inverse = torch.linalg.inv(x)  # its check of the matrix is an effect
        return y.add_(1)[0], inverse, torch.kron(y, y)

    found = rules(f, torch.eye(3), torch.ones(2, 5), dynamic=False)["inference"]
    _token, mutated, alias, inverse, product = found
    assert mutated == OutputRule(own_memory=True, changes=2)  # behind the token and x
    assert alias == OutputRule()
    assert (len(inverse.stride), inverse.own_memory) == (2, True)
    assert product == OutputRule(stride=(25, 1), own_memory=True)


def test_alias_of_an_input_may_share_its_memory(rules) -> None:
    [alias] = rules(lambda x: x.t(), torch.ones(2, 3))["inference"]
    assert not alias.own_memory


def test_forward_outputs_must_be_no_views_saved_tensors_may(rules) -> None:
    x = torch.ones(3, 3, requires_grad=True)
    found = rules(lambda x: (x @ x).tanh(), x)
    output, *saved = found["forward"]
    assert output == OutputRule(stride=(3, 1), own_memory=True, no_view=True)
    assert saved
    assert all(rule == OutputRule() for rule in saved)


def test_disguised_view_must_be_alone(rules) -> None:
    x = torch.ones(3, 3, requires_grad=True)
    output, *_ = rules(lambda x: (x @ x).tanh().t(), x)["forward"]
    assert output.alone
    assert not output.no_view


def test_gradients_have_no_rules(rules) -> None:
    x = torch.ones(3, requires_grad=True)
    found = rules(lambda x: x.sin(), x)
    assert found["backward"] == [OutputRule()]


def test_strides_are_those_before_decomposition(rules) -> None:
    def f(x):
        return torch.nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")

    x = torch.ones(1, 2, 3, 3).to(memory_format=torch.channels_last)
    [rule] = rules(f, x)["inference"]
    assert rule.stride == f(x).stride()


def test_changed_inputs_outside_of_tracing_are_none() -> None:
    assert autograd.changed_inputs() == []
