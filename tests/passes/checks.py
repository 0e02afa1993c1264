"""Runs the pipeline and holds it to its contract.

In: a module or its text. Out: the outlined module and its groups. Invariant: what the interpreter
says before and after is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from torch_mlir import ir

from neuron_compile.passes import run_pipeline
from neuron_compile.passes.graph import main_function
from neuron_compile.passes.ops import KINDS, is_pull
from neuron_compile.passes.unit import Unit
from tests import oracle


def compile_groups(
    source: str | ir.Module,
    inputs: Sequence[np.ndarray] | None = None,
    *,
    rtol: float = 0.0,
) -> ir.Module:
    """The outlined module, after comparing its meaning (exactly, unless `rtol` is given)."""
    module = oracle.parse(source) if isinstance(source, str) else source
    inputs = oracle.random_inputs(module) if inputs is None else inputs
    before = oracle.evaluate(module, inputs)
    run_pipeline(module)
    assert module.operation.verify()
    check_contract(module)
    assert_same(before, oracle.evaluate(module, inputs), rtol)
    return module


def apply(
    source: str | ir.Module,
    *steps: Callable[[Unit], None],
    inputs: Sequence[np.ndarray] | None = None,
    rtol: float = 0.0,
    idempotent: bool = True,
) -> Unit:
    """Runs single passes: they must keep the meaning, and find nothing the second time."""
    module = oracle.parse(source) if isinstance(source, str) else source
    inputs = oracle.random_inputs(module) if inputs is None else inputs
    before = oracle.evaluate(module, inputs)
    with module.context, ir.Location.unknown():
        unit = Unit(module)
        for step in steps:
            step(unit)
        assert module.operation.verify()
        assert_same(before, oracle.evaluate(module, inputs), rtol)
        if not idempotent:
            return unit
        once = str(module)
        again = Unit(module)
        for step in steps:
            step(again)
        assert str(module) == once, "not idempotent"
    return unit


def ops(unit: Unit) -> list[str]:
    """The names of the ops of `@main`, constants left out."""
    return [node.name for node in unit.graph.nodes if node.name != "constant"]


def assert_same(
    expected: Sequence[np.ndarray], actual: Sequence[np.ndarray], rtol: float = 0.0
) -> None:
    """Equal bits, signed zeros included; with `rtol`, close floats."""
    for want, got in zip(expected, actual, strict=True):
        assert want.dtype == got.dtype
        assert want.shape == got.shape
        if rtol and want.dtype.kind in "fc":
            np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)
        else:
            np.testing.assert_array_equal(got, want)
            if want.dtype.kind == "f":
                known = ~np.isnan(want)
                np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(want)[known])


def functions(module: ir.Module) -> dict[str, ir.Operation]:
    """The private functions by name."""
    found = {}
    for op in module.body.operations:
        name = ir.StringAttr(op.operation.attributes["sym_name"]).value
        if name != "main":
            found[name] = op.operation
    return found


def calls(module: ir.Module) -> list[str]:
    """The callees of `@main`, in order."""
    block = main_function(module).regions[0].blocks[0]
    return [
        ir.FlatSymbolRefAttr(op.operation.attributes["callee"]).value
        for op in block.operations
        if op.operation.name == "func.call"
    ]


def kinds(module: ir.Module) -> list[str]:
    """The kind of each call of `@main`, in order."""
    known = functions(module)
    return [ir.StringAttr(known[name].attributes["neuron.kind"]).value for name in calls(module)]


def check_contract(module: ir.Module) -> None:
    """What code generation relies on."""
    with module.context:
        for op in main_function(module).regions[0].blocks[0].operations:
            name = op.operation.name
            assert name in ("stablehlo.constant", "func.call", "func.return"), name
        known = functions(module)
        assert set(calls(module)) == set(known)
        for function in known.values():
            kind = ir.StringAttr(function.attributes["neuron.kind"]).value
            assert kind in KINDS
            body = [op.operation.name for op in function.regions[0].blocks[0].operations]
            names = [name.removeprefix("stablehlo.") for name in body[:-1]]
            heart = [name for name in names if not is_pull(name)]
            assert len(heart) <= (2 if kind == "attention" else 1), (kind, heart)
            if kind == "loop":
                assert not heart
