"""A function under construction, for tests of the Builder.

In: argument shapes and dtypes. Out: a Builder whose insertion point is the function's end, and the
arguments. Invariant: the module is verified when the `with` block ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch_mlir import ir
from torch_mlir.dialects import func

from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.context import new_context


@contextlib.contextmanager
def function(
    *arguments: tuple[Sequence[int], torch.dtype],
) -> Iterator[tuple[Builder, list[ir.Value]]]:
    """A Builder and the arguments of a function of such tensors."""
    with new_context() as context, ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ir.FunctionType.get([], []))
        block = ir.Block.create_at_start(main.body, [])
        b = Builder(context, block)
        values = [
            block.add_argument(b.types.tensor(shape, dtype), b.location)
            for shape, dtype in arguments
        ]
        types = [value.type for value in values]
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
        with ir.InsertionPoint(block):
            yield b, values
            func.ReturnOp([])
        assert module.operation.verify()
