"""The meaning of a StableHLO module: the reference interpreter of the torch-mlir wheel.

In: a module with `@main`, and NumPy arrays. Out: the arrays it returns. Invariant: the module is
not changed (chlo is legalised on a clone). bfloat16 travels as uint16 bits, see `to_bf16`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch_mlir import ir
from torch_mlir._mlir_libs import _stablehlo
from torch_mlir.passmanager import PassManager

from neuron_compile.passes.dialects import new_context
from neuron_compile.passes.graph import main_function

_NUMPY = {
    "i1": np.bool_,
    **{f"i{n}": np.dtype(f"int{n}") for n in (8, 16, 32, 64)},
    **{f"ui{n}": np.dtype(f"uint{n}") for n in (8, 16, 32, 64)},
    "f16": np.float16,
    "bf16": np.uint16,
    "f32": np.float32,
    "f64": np.float64,
    "complex<f32>": np.complex64,
    "complex<f64>": np.complex128,
}


def evaluate(module: ir.Module, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Runs `@main`. Each array has the dtype and shape of its argument (bf16: uint16 bits).

    Raises MLIRError where the interpreter refuses an op. Empty tensors, `dot` and
    `rng_bit_generator` end the process inside LLVM: do not pass such modules.
    """
    with module.context, ir.Location.unknown():
        clone = ir.Module.parse(module.operation.get_asm(print_generic_op_form=True))
        complex_arguments, complex_results = _without_complex(clone)
        _return_bits(clone)
        PassManager.parse("builtin.module(func.func(chlo-legalize-to-stablehlo))").run(
            clone.operation
        )
        types = [argument.type for argument in main_function(clone).regions[0].blocks[0].arguments]
        parts = [
            part
            for array, is_complex in zip(arrays, complex_arguments, strict=True)
            for part in ((array.real, array.imag) if is_complex else (array,))
        ]
        attributes = [to_attribute(a, t) for a, t in zip(parts, types, strict=True)]
        found = iter(map(from_attribute, _stablehlo.eval_module(clone, attributes)))
        return [
            next(found) + 1j * next(found) if is_complex else next(found)
            for is_complex in complex_results
        ]


def dtype_of(tensor: ir.Type) -> np.dtype:
    """The NumPy dtype that carries a tensor type."""
    return np.dtype(_NUMPY[str(ir.RankedTensorType(tensor).element_type)])


def to_attribute(array: np.ndarray, tensor: ir.Type) -> ir.Attribute:
    """A dense attribute with the contents of `array`."""
    wanted = dtype_of(tensor)
    shape = tuple(ir.RankedTensorType(tensor).shape)
    if array.dtype != wanted or array.shape != shape:
        raise TypeError(f"{array.dtype}{array.shape} given for {tensor}")
    if array.size == 0:
        return ir.Attribute.parse(f"dense<> : {tensor}")
    return ir.DenseElementsAttr.get(np.ascontiguousarray(array), type=tensor)


def from_attribute(attribute: ir.Attribute) -> np.ndarray:
    """The contents of a dense attribute. bf16 must have been turned into bits before."""
    tensor = ir.RankedTensorType(attribute.type)
    shape = tuple(tensor.shape)
    dtype = dtype_of(tensor)
    if 0 in shape:
        return np.zeros(shape, dtype)
    if attribute.is_splat:
        return np.full(shape, _scalar(attribute.get_splat_value()), dtype)
    return np.array(attribute).astype(dtype, copy=False).reshape(shape)


def _scalar(attribute: ir.Attribute) -> object:
    return attribute.value  # IntegerAttr and FloatAttr alike


def to_bf16(array: np.ndarray) -> np.ndarray:
    """float32 -> bfloat16 bits (uint16), to nearest even; NaN stays NaN."""
    as_bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = ((as_bits + 0x7FFF + ((as_bits >> 16) & 1)) >> 16).astype(np.uint16)
    rounded = rounded.reshape(np.shape(array))  # ascontiguousarray makes 0-d one-dimensional
    return np.where(np.isnan(array), np.uint16(0x7FC0), rounded)


def from_bf16(array: np.ndarray) -> np.ndarray:
    """bfloat16 bits (uint16) -> float32."""
    return (array.astype(np.uint32) << 16).view(np.float32)


def parse(text: str) -> ir.Module:
    """A module in a context of its own."""
    with new_context(), ir.Location.unknown():
        return ir.Module.parse(text)


def random_inputs(module: ir.Module, seed: int = 0, scale: float = 1.0) -> list[np.ndarray]:
    """Arguments for `@main`: normal floats, small integers, coin flips."""
    random = np.random.default_rng(seed)
    arrays = []
    with module.context:
        for argument in main_function(module).regions[0].blocks[0].arguments:
            tensor = ir.RankedTensorType(argument.type)
            name, shape = str(tensor.element_type), tuple(tensor.shape)
            if name == "i1":
                arrays.append(random.random(shape) < 0.5)
            elif name == "bf16":
                arrays.append(to_bf16(random.standard_normal(shape).astype(np.float32) * scale))
            elif "i" in name:
                arrays.append(random.integers(0, 8, shape).astype(_NUMPY[name]))
            else:
                normal = np.asarray(random.standard_normal(shape) * scale)
                arrays.append(normal.astype(_NUMPY[name]))
    return arrays


def _without_complex(module: ir.Module) -> tuple[list[bool], list[bool]]:
    """Complex arguments and results as pairs of floats, which attributes can carry.

    Says which of the arguments and of the results were complex.
    """
    main = main_function(module)
    block = main.regions[0].blocks[0]
    terminator = list(block.operations)[-1].operation
    first = ir.InsertionPoint.at_block_begin(block)
    arguments = list(block.arguments)
    flags = ["complex" in str(argument.type) for argument in arguments]
    for argument, is_complex in zip(arguments, flags, strict=True):
        tensor = ir.RankedTensorType(argument.type)
        kind = tensor
        if is_complex:
            kind = ir.RankedTensorType.get(
                tensor.shape, ir.ComplexType(tensor.element_type).element_type
            )
        parts = [
            block.add_argument(kind, ir.Location.unknown()) for _ in range(2 if is_complex else 1)
        ]
        value = parts[0]
        if is_complex:
            value = ir.Operation.create(
                "stablehlo.complex", results=[tensor], operands=parts, ip=first
            ).operation.results[0]
        argument.replace_all_uses_with(value)
    for _ in arguments:
        block.erase_argument(0)
    outputs: list[ir.Value] = []
    results = []
    for value in terminator.operands:
        tensor = ir.RankedTensorType(value.type)
        results.append("complex" in str(tensor))
        if not results[-1]:
            outputs.append(value)
            continue
        part = ir.RankedTensorType.get(
            tensor.shape, ir.ComplexType(tensor.element_type).element_type
        )
        outputs += [
            ir.Operation.create(
                f"stablehlo.{name}",
                results=[part],
                operands=[value],
                ip=ir.InsertionPoint(terminator),
            ).operation.results[0]
            for name in ("real", "imag")
        ]
    ir.Operation.create("func.return", operands=outputs, ip=ir.InsertionPoint(terminator))
    terminator.erase()
    for name in ("arg_attrs", "res_attrs"):
        if name in main.attributes:
            del main.attributes[name]
    return flags, results


def _return_bits(module: ir.Module) -> None:
    """bf16 results become ui16: the attribute's buffer cannot be read as bfloat16."""
    main = main_function(module)
    block = main.regions[0].blocks[0]
    terminator = list(block.operations)[-1].operation
    types = []
    bits_type = ir.IntegerType.get_unsigned(16)
    for index, value in enumerate(list(terminator.operands)):
        tensor = ir.RankedTensorType(value.type)
        if str(tensor.element_type) == "bf16":
            wanted = ir.RankedTensorType.get(tensor.shape, bits_type)
            value = ir.Operation.create(
                "stablehlo.bitcast_convert",
                results=[wanted],
                operands=[value],
                ip=ir.InsertionPoint(terminator),
            ).operation.results[0]
            terminator.operands[index] = value
        types.append(value.type)
    arguments = [argument.type for argument in block.arguments]
    main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(arguments, types))
