"""The outlined module as plain records.

`@main`'s calls in schedule order, and the groups they call.

In: the module after the passes. Out: a `Program`. Values are numbered; a result that is an
argument, a constant or returned twice gets a copy, so that every output buffer is written by
exactly one call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch_mlir import ir

from neuron_compile.errors import CodegenError
from neuron_compile.neff.codegen.index import contiguous_strides
from neuron_compile.neff.codegen.program import (
    Group,
    Node,
    Tensor,
    attribute_array,
    dense_array,
    read_group,
    strides_of,
    tensor_of,
)


@dataclass(frozen=True, slots=True)
class Call:
    """One execution of a group; operands and results are value numbers."""

    group: str
    operands: tuple[int, ...]
    results: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Values are numbered: the inputs first, then the constants, then the calls' results.

    `checks` are values, each one boolean, that end the run where they are false.
    """

    tensors: tuple[Tensor, ...]
    inputs: int
    constants: tuple[np.ndarray[Any, Any], ...]
    outputs: tuple[int, ...]
    calls: tuple[Call, ...]
    groups: Mapping[str, Group]
    checks: tuple[int, ...] = ()

    @property
    def first_result(self) -> int:
        return self.inputs + len(self.constants)


def read_program(module: ir.Module) -> Program:
    """Records of a module whose `@main` only calls outlined groups."""
    functions = {ir.StringAttr(f.attributes["sym_name"]).value: f for f in module.body.operations}
    if "main" not in functions:
        raise CodegenError("the module has no @main")
    groups = {name: read_group(f) for name, f in functions.items() if name != "main"}
    return _MainReader(functions["main"], groups).read()


class _MainReader:
    def __init__(self, main: Any, groups: dict[str, Group]) -> None:
        self.main, self.groups = main, groups
        self.block = main.regions[0].blocks[0]
        self.tensors: list[Tensor] = []
        self.known: dict[Any, int] = {}
        self.constants: list[np.ndarray[Any, Any]] = []
        self.calls: list[Call] = []

    def read(self) -> Program:
        layouts = attribute_array(self.main, "arg_attrs")
        for i, argument in enumerate(self.block.arguments):
            self._define(argument, tensor_of(argument.type, strides_of(layouts, i)))
        operations = [o.operation for o in self.block.operations]
        for operation in operations:  # constants first: they are numbered before all results
            if operation.name == "stablehlo.constant":
                self.constants.append(dense_array(operation.attributes["value"]))
                self._define(operation.results[0], tensor_of(operation.results[0].type))
        for operation in operations:
            if operation.name == "func.call":
                self._call(operation)
            elif operation.name not in ("stablehlo.constant", "func.return"):
                raise CodegenError(f"@main holds {operation.name}, which no pass outlined")
        outputs = self._outputs(operations[-1])
        inputs = len(self.block.arguments)
        return Program(
            tuple(self.tensors),
            inputs,
            tuple(self.constants),
            outputs,
            tuple(self.calls),
            self.groups,
        )

    def _define(self, value: Any, tensor: Tensor) -> int:
        self.known[value] = len(self.tensors)
        self.tensors.append(tensor)
        return self.known[value]

    def _call(self, operation: Any) -> None:
        name = ir.FlatSymbolRefAttr(operation.attributes["callee"]).value
        operands = tuple(self.known[v] for v in operation.operands)
        outputs = self.groups[name].outputs
        results = tuple(self._define(r, t) for r, t in zip(operation.results, outputs, strict=True))
        self.calls.append(Call(name, operands, results))

    def _outputs(self, returned: Any) -> tuple[int, ...]:
        layouts = attribute_array(self.main, "res_attrs")
        first_result = len(self.block.arguments) + len(self.constants)
        outputs: list[int] = []
        for i, value in enumerate(returned.operands):
            number = self.known[value]
            tensor = self.tensors[number]
            strides = strides_of(layouts, i) or contiguous_strides(tensor.shape)
            if number < first_result or number in outputs or not _same_layout(tensor, strides):
                number = self._copy(number, Tensor(tensor.shape, tensor.elem, strides))
            outputs.append(number)
        return tuple(outputs)

    def _copy(self, number: int, output: Tensor) -> int:
        """A call that copies a value into a buffer of its own."""
        name = f"copy{len(self.groups)}"
        source = Node("parameter", (), self.tensors[number], {"number": 0})
        self.groups[name] = Group(name, "loop", (source,), (source,), (output,), ())
        self.tensors.append(output)
        self.calls.append(Call(name, (number,), (len(self.tensors) - 1,)))
        return len(self.tensors) - 1


def _same_layout(tensor: Tensor, strides: tuple[int, ...]) -> bool:
    return all(
        n <= 1 or a == b for n, a, b in zip(tensor.shape, tensor.strides, strides, strict=True)
    )
