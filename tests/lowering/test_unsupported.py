"""All unsupported operators are reported at once, each with what a user needs to act."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from neuron_compile.errors import UnsupportedOpError
from neuron_compile.lowering import find_unsupported, lower

aten = torch.ops.aten


def trace(function, *args) -> torch.fx.GraphModule:
    def flat(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = function(*tensors)
        return made if isinstance(made, tuple) else (made,)

    return make_fx(flat, tracing_mode="fake")(*args)


def two_faults(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    first = aten.special_airy_ai.default(x)
    second = aten.view.dtype(x > 0, torch.uint8)
    return first, second.sin()


def test_all_are_found_in_graph_order() -> None:
    found = find_unsupported(trace(two_faults, torch.randn(2, 3)))
    assert [f.op for f in found] == ["aten.special_airy_ai.default", "aten.view.dtype"]
    assert found[0].operands == "float32[2, 3]"
    assert found[0].reason == "no emitter, and Torch-MLIR does not translate it"
    assert found[1].reason == "bool cannot be reinterpreted"


def test_lower_raises_once_with_every_one() -> None:
    with pytest.raises(UnsupportedOpError) as caught:
        lower(trace(two_faults, torch.randn(2, 3)))
    assert len(caught.value.ops) == 2
    message = str(caught.value)
    assert "2 operators cannot be lowered" in message
    assert "aten.special_airy_ai.default: no emitter, and Torch-MLIR" in message
    assert "torch.compiler.disable" in message


def airy_of_all(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple([aten.special_airy_ai.default(x) for x in tensors])


def test_the_message_has_each_operator_reason_and_place_once() -> None:
    with pytest.raises(UnsupportedOpError) as caught:
        lower(trace(airy_of_all, torch.randn(3), torch.randn(3), torch.randn(2)))
    lines = str(caught.value).splitlines()
    assert lines[:2] == [
        "1 operator cannot be lowered:",
        "    aten.special_airy_ai.default: no emitter, and Torch-MLIR does not translate it",
    ]
    assert lines[2].startswith("        float32[3] at ")
    assert lines[2].endswith(" (2 times)")
    assert lines[3].startswith("        float32[2] at ")
    assert [line.split(":")[0] for line in lines[4:]] == ["  what to do"]
    assert len(caught.value.ops) == 3
    assert (caught.value.where, caught.value.why) != ("", "")


def test_of_many_places_only_the_first_are_shown() -> None:
    with pytest.raises(UnsupportedOpError) as caught:
        lower(trace(airy_of_all, *(torch.randn(size) for size in range(1, 8))))
    lines = str(caught.value).splitlines()
    assert lines[-2] == "        and at 3 more places"
    assert len(lines) == 2 + 4 + 2


def test_line_of_the_user_is_named() -> None:
    graph = trace(two_faults, torch.randn(2, 3))
    node = next(n for n in graph.graph.nodes if "airy" in str(n.target))
    node.meta["stack_trace"] = '  File "mine.py", line 7, in forward\n    x.airy()\n'
    assert find_unsupported(graph)[0].where == "mine.py:7"


def test_dtypes_without_an_mlir_type_are_reported() -> None:
    graph = trace(lambda x: x.to(torch.float8_e5m2), torch.randn(2))
    assert [f.reason for f in find_unsupported(graph)] == [
        "dtype torch.float8_e5m2 is not supported"
    ]


def test_supported_graphs_report_nothing() -> None:
    assert find_unsupported(trace(lambda x: (x + 1).sum(), torch.randn(2))) == []


def test_an_operator_that_was_wrapped_for_its_effect_is_named() -> None:
    with pytest.raises(Exception, match=r"aten\._linalg_check_errors\.default: an effect besides"):
        torch.compile(torch.linalg.cholesky, backend="neuron")(torch.eye(2))
