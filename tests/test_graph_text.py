"""Canonical texts: equal exactly when the values, or the computations, are equal."""

from __future__ import annotations

import enum
import math
import operator
import struct
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from neuron_compile.graph_text import Unhashable, graph_text, target_text, value_text

aten = torch.ops.aten

# Few and confusable, so that two drawn values are often equal and else often nearly so.
ATOMS = st.sampled_from(
    [
        *(None, False, True, 0, 1, -1, 2**70),
        *(0.0, -0.0, 1.0, 1.5, math.inf, -math.inf, math.nan, 1e16, 10**16),
        *(complex(0, 0), complex(0, -0.0), complex(-0.0, 0), complex(1, math.nan), 1j),
        *("", "1", "None", "a, b", "'", "torch.float32", "\n", "é", "\ud800", b"", b"1"),
        *(torch.float32, torch.float64, torch.bool, torch.strided, torch.sparse_coo),
        *(torch.contiguous_format, torch.channels_last, torch.device("cpu"), torch.device("meta")),
        *(..., int, float, slice(None), slice(0, None), slice(0, 1, 2), range(3), range(0, 3, 2)),
    ]
)
VALUES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from(["a", "b", 1, 1.5]), inner, max_size=2),
    ),
    max_leaves=5,
)


def same(a: Any, b: Any) -> bool:
    """Equal in type and value, by other means than the text."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b)
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        keys = {(type(k), k) for k in a}
        return keys == {(type(k), k) for k in b} and all(same(a[k], b[k]) for k in a)
    if isinstance(a, slice):
        return all(same(x, y) for x, y in zip(_bounds(a), _bounds(b), strict=True))
    if isinstance(a, range):
        return _bounds(a) == _bounds(b)
    return a == b


def _bounds(value: slice | range) -> tuple[Any, Any, Any]:
    return value.start, value.stop, value.step


@given(VALUES, VALUES)
def test_texts_are_equal_exactly_when_values_are(a: Any, b: Any) -> None:
    assert (value_text(a) == value_text(b)) == same(a, b)


@given(st.lists(ATOMS, max_size=4), st.lists(ATOMS, max_size=4))
def test_a_nested_value_cannot_pass_for_its_parts(a: list[Any], b: list[Any]) -> None:
    texts = [value_text(v) for v in ([a, b], [*a, b], [a, *b], [*a, *b], [[a], b], (a, b))]
    values = [[a, b], [*a, b], [a, *b], [*a, *b], [[a], b], (a, b)]
    for i, one in enumerate(values):
        for j, two in enumerate(values):
            assert (texts[i] == texts[j]) == same(one, two)


def test_sets_and_mappings_have_no_order() -> None:
    assert list({0, 8}) != list({8, 0})  # these two collide in Python's table, in any process
    assert value_text({0, 8}) == value_text({8, 0})
    assert value_text({"x": 1, "y": 2}) == value_text({"y": 2, "x": 1})
    assert value_text({1, 2}) != value_text({1, 3})


def test_payloads_of_not_a_number_differ() -> None:
    payload = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]
    assert value_text(math.nan) != value_text(payload)
    assert value_text(math.nan) == value_text(float("nan"))


def test_t146_a_device_has_no_index() -> None:
    assert value_text(torch.device("cuda:0")) == value_text(torch.device("cuda:3"))
    assert value_text(torch.device("cuda")) != value_text(torch.device("cpu"))


def test_a_size_is_a_tuple_and_numpys_float_a_float() -> None:
    assert value_text(torch.Size([2, 3])) == value_text((2, 3))
    assert value_text(np.float64(0.1)) == value_text(0.1)


def test_enumerations_and_named_tuples_carry_their_type() -> None:
    colour = enum.Enum("colour", "red green")
    point, size = namedtuple("point", "x y"), namedtuple("size", "x y")  # noqa: PYI024
    assert value_text(colour.red) != value_text(colour.green)
    assert value_text(point(1, 2)) != value_text(size(1, 2))
    assert value_text(point(1, 2)) != value_text((1, 2))


TENSORS = [
    torch.tensor([1.0, 2.0]),
    torch.tensor([1.0, 2.0], dtype=torch.float64),
    torch.tensor([1, 2]),
    torch.tensor([[1.0, 2.0]]),
    torch.tensor([1.0, -2.0]),
    torch.tensor([0.0, 0.0]),
    torch.tensor([0.0, -0.0]),
    torch.tensor(1.0),
    torch.tensor([1.0]),
    torch.tensor([True, False]),
    torch.tensor([1.0, 2.0], dtype=torch.bfloat16),
    torch.tensor([1.0 + 2.0j]),
    torch.tensor([1.0 - 2.0j]),
    torch.empty(0),
    torch.empty(0, 3),
    torch.empty(0, dtype=torch.int64),
]


def test_tensors_differ_by_type_shape_and_content() -> None:
    texts = [value_text(tensor) for tensor in TENSORS]
    assert len(set(texts)) == len(TENSORS)
    assert [value_text(tensor.clone()) for tensor in TENSORS] == texts


def test_a_tensor_is_its_content_whatever_the_storage() -> None:
    base = torch.arange(6.0).reshape(2, 3)
    spread = torch.zeros(4, 6)[::2, ::2]
    spread.copy_(base)
    assert value_text(base.t().contiguous().t()) == value_text(base) == value_text(spread)
    assert value_text(torch.nn.Parameter(base)) == value_text(base)
    number = torch.tensor([1.0 + 2.0j])
    assert value_text(number.conj()) == value_text(torch.tensor([1.0 - 2.0j]))


def test_a_real_tensor_is_read_even_while_a_fake_mode_is_active() -> None:
    text = value_text(TENSORS[0])
    with FakeTensorMode():
        assert value_text(TENSORS[0]) == text


class Opaque:
    pass


def a_function() -> None:
    pass


def a_symbol() -> torch.SymInt:
    graph = make_fx(lambda x: x * 2, tracing_mode="symbolic")(torch.empty(5, 7))
    return next(iter(graph.graph.nodes)).meta["val"].shape[0]


def unhashable_values() -> list[Any]:
    with FakeTensorMode():
        fake = torch.ones(2)
    return [
        Opaque(),
        Opaque,
        a_function,
        lambda: None,
        torch.Generator(),
        torch.nn.Linear(1, 1),
        torch.sparse_coo_tensor(
            torch.tensor([[0]]), torch.tensor([1.0]), (2,), check_invariants=True
        ),
        fake,
        a_symbol(),
        iter([]),
        [1, (2, {"a": Opaque()})],
    ]


@pytest.mark.parametrize("index", range(11))
def test_what_has_no_text_that_others_agree_on_is_refused(index: int) -> None:
    with pytest.raises(Unhashable):
        value_text(unhashable_values()[index])


def test_a_symbol_that_has_become_a_number_is_that_number() -> None:
    symbol = a_symbol()
    constant = symbol - symbol
    assert isinstance(constant, torch.SymInt)
    assert value_text(constant) == value_text(0)


def test_targets_by_exact_overload() -> None:
    assert target_text(aten.add.Tensor) == "aten::add.Tensor"
    targets = [aten.add.Tensor, aten.add.Scalar, aten.add.out, aten.sum.default, aten.sub.Tensor]
    targets += [operator.getitem, operator.add, math.sqrt, torch.sym_float, torch.relu]
    targets += [torch.nn.functional.relu, torch.ops.prims.mul.default, torch.cos, torch.sin]
    assert len({target_text(target) for target in targets}) == len(targets)


@pytest.mark.parametrize("target", [a_function, Opaque(), "text", lambda x: x])
def test_targets_of_the_users_own_are_refused(target: Any) -> None:
    with pytest.raises(Unhashable):
        target_text(target)


def test_a_custom_operator_carries_its_schema() -> None:
    with torch.library._scoped_library("neuron_compile_test", "DEF") as library:
        library.define("twice(Tensor x, float by=2.0) -> Tensor")
        text = target_text(torch.ops.neuron_compile_test.twice.default)
    assert "twice" in text
    assert "float by=2." in text


def test_a_triton_kernel_is_refused() -> None:
    """Its arguments are indices into a table that each process fills in its own order."""
    from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_functional

    with pytest.raises(Unhashable, match="triton"):
        target_text(triton_kernel_wrapper_functional)


# Programs over two inputs: (operator, first operand, second operand or constant).
BINARY = [aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(BINARY), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.just(aten.sum.dim_IntList), st.integers(0, 3), st.sampled_from([[0], [1]])),
        st.tuples(st.just(aten.mul.Scalar), st.integers(0, 3), st.sampled_from([1, 1.0, True])),
    ),
    max_size=3,
)


def program(steps: list[tuple[Any, int, Any]], prefix: str) -> torch.fx.GraphModule:
    """Operands count backwards from the newest value; names begin with `prefix`."""
    graph = torch.fx.Graph()
    values = [graph.placeholder(f"{prefix}_in_{i}") for i in range(2)]
    for op, first, second in steps:
        operands = [values[-1 - first % len(values)]]
        if op in BINARY:
            operands.append(values[-1 - second % len(values)])
        else:
            operands.append(second)
        node = graph.call_function(op, tuple(operands))
        node.name = f"{prefix}_{len(values)}"
        values.append(node)
    graph.output((values[-1], None))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def resolved(steps: list[tuple[Any, int, Any]]) -> list[tuple[str, int, str]]:
    """The program with operands by position: what the text must tell apart."""
    found = []
    for count, (op, first, second) in enumerate(steps, start=2):
        other = count - 1 - second % count if op in BINARY else repr(second)
        found.append((str(op), count - 1 - first % count, str(other)))
    return found


@given(STEPS, STEPS)
def test_graphs_have_equal_texts_exactly_when_they_are_equal(a: Any, b: Any) -> None:
    one, two = graph_text(program(a, "p")), graph_text(program(b, "another"))
    assert (one == two) == (resolved(a) == resolved(b))


def test_the_text_reads_like_the_graph() -> None:
    graph = make_fx(lambda x: (x.sum(1, keepdim=True) * 2.0, None), tracing_mode="fake")(
        torch.ones(2, 3)
    )
    assert graph_text(graph).splitlines() == [
        "%0 = placeholder()",
        "%1 = aten::sum.dim_IntList(%0, [1], True)",
        "%2 = aten::mul.Tensor(%1, 2.0)",
        "%3 = output((%2, None))",
    ]


def test_subgraphs_count_by_content() -> None:
    def branch(scale: float) -> str:
        def function(x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda v: v * scale, lambda v: v + 1, (x,))

        return graph_text(make_fx(function, tracing_mode="fake")(torch.ones(3)))

    assert "higher-order cond" in branch(2.0)
    assert branch(2.0) == branch(2.0)
    assert branch(2.0) != branch(3.0)


def test_a_refusal_names_the_users_line() -> None:
    graph = torch.fx.Graph()
    node = graph.call_function(a_function)
    node.meta["stack_trace"] = (
        'File "/model/outer.py", line 3, in forward\n    f(x)\n'
        '  File "/model/inner.py", line 8, in f\n    return g(x)\n'
    )
    node.stack_trace = node.meta["stack_trace"]
    graph.output((node,))
    with pytest.raises(Unhashable) as caught:
        graph_text(torch.fx.GraphModule(torch.nn.Module(), graph))
    assert caught.value.where == "/model/inner.py:8"
    assert "a_function" in caught.value.reason


def test_a_called_module_and_a_missing_attribute_are_refused() -> None:
    root = torch.nn.Module()
    root.layer = torch.nn.Linear(2, 2)
    graph = torch.fx.Graph()
    graph.output((graph.call_module("layer", (graph.placeholder("x"),)),))
    with pytest.raises(Unhashable, match="calls the module 'layer'"):
        graph_text(torch.fx.GraphModule(root, graph))
