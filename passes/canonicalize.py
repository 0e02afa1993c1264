"""MLIR's own clean-up: dead code, common subexpressions, constants back into the regions they left.

In: any module. Out: one op per distinct value, regions that capture no constants. Invariant: exact;
`stablehlo-aggressive-simplification` is left out because it turns x + 0.0 into x, wrong for -0.0.
"""

from __future__ import annotations

from torch_mlir import ir
from torch_mlir.passmanager import PassManager

from neuron_compile.errors import PassError
from neuron_compile.passes.graph import captures, main_function
from neuron_compile.passes.unit import Unit

_PIPELINE = "builtin.module(func.func(canonicalize,cse))"


def canonicalize(unit: Unit) -> None:
    """Runs `canonicalize,cse`, then renames arith.constant and undoes hoisting out of regions."""
    try:
        PassManager.parse(_PIPELINE).run(unit.module.operation)
    except ir.MLIRError as error:
        raise PassError("MLIR's canonicalization refused the module", why=str(error)) from error
    unit.invalidate()
    block = main_function(unit.module).regions[0].blocks[0]
    constants: dict[ir.Value, ir.Operation] = {}
    for op in list(block.operations):
        op = op.operation
        if op.name == "stablehlo.optimization_barrier":  # orders nothing that this compiler moves
            for result, operand in zip(list(op.results), list(op.operands), strict=True):
                result.replace_all_uses_with(operand)
            op.erase()
            continue
        if op.name == "arith.constant":
            op = _as_stablehlo(op)
        if op.name == "stablehlo.constant":
            constants[op.results[0]] = op
        elif len(op.regions):
            _sink_constants(op, constants)


def _as_stablehlo(op: ir.Operation) -> ir.Operation:
    made = ir.Operation.create(
        "stablehlo.constant",
        results=[op.results[0].type],
        attributes={"value": op.attributes["value"]},
        loc=op.location,
        ip=ir.InsertionPoint(op),
    ).operation
    op.results[0].replace_all_uses_with(made.results[0])
    op.erase()
    return made


def _sink_constants(op: ir.Operation, constants: dict[ir.Value, ir.Operation]) -> None:
    """MLIR hoists the constants of a reduce body to `@main`; code generation wants them inside."""
    for value in captures(op, constants):
        for region in op.regions:
            for block in region.blocks:
                users = [u for u in block.operations if value in list(u.operation.operands)]
                if not users:
                    continue
                clone = constants[value].clone(ip=ir.InsertionPoint.at_block_begin(block))
                for user in users:
                    user.operation.replace_uses_of_with(value, clone.operation.results[0])
