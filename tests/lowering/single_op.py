"""One operator through lowering and StableHLO's interpreter, against eager PyTorch.

In: an overload (or a function of tensors) and its arguments. Out: results as torch tensors, or a
failed assertion. Invariant: the graph the lowering sees is what AOTAutograd would hand it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree
from torch_mlir import ir
from torch_mlir._mlir_libs import _stablehlo
from torch_mlir.passmanager import PassManager

from neuron_compile.lowering import Lowered, decomposition_table, lower
from tests.lowering.philox import put_bits_in_place

_stablehlo.register_stablehlo_passes()


def graph_of(
    call: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any] | None = None
) -> tuple[torch.fx.GraphModule, list[Any]]:
    """The decomposed functional graph of one call, and the tensors it takes.

    Results that are None are left out, as the front door does.
    """
    leaves, spec = pytree.tree_flatten((tuple(args), kwargs or {}))
    where = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[i] for i in where]

    def flat(*given: torch.Tensor) -> list[torch.Tensor]:
        filled = list(leaves)
        for i, tensor in zip(where, given, strict=True):
            filled[i] = tensor
        inner_args, inner_kwargs = pytree.tree_unflatten(filled, spec)
        out = call(*inner_args, **inner_kwargs)
        return [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = [mode.from_tensor(tensor) for tensor in tensors]
        graph = make_fx(functionalize(flat), decomposition_table=decomposition_table())(*fake)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph, tensors


def interpret(
    lowered: Lowered, tensors: Sequence[torch.Tensor], state: tuple[int, int] = (1, 2)
) -> list[torch.Tensor]:
    """Run `@main` in StableHLO's reference interpreter; `state` is the random key and counter."""
    module = lowered.module
    if lowered.uses_random:
        tensors = [*tensors, torch.tensor(state, dtype=torch.uint64)]
    with module.context, ir.Location.unknown():
        _stablehlo.register_interpreter_dialect(module.context)
        PassManager.parse("builtin.module(func.func(chlo-legalize-to-stablehlo))").run(
            module.operation
        )
        put_bits_in_place(module, state)
        meant = _return_carriers(module)
        results = _stablehlo.eval_module(module, [_attribute(t) for t in tensors])
        return _tensors(results, meant)


def run(
    call: Callable[..., Any], *args: Any, state: tuple[int, int] = (1, 2), **kwargs: Any
) -> list[torch.Tensor]:
    """The results of a call, by way of lowering and the interpreter."""
    graph, tensors = graph_of(call, args, kwargs)
    return interpret(lower(graph), tensors, state)


def check(
    call: Callable[..., Any], *args: Any, tolerance: float | None = None, **kwargs: Any
) -> None:
    """Assert that a call means in StableHLO what it means in eager.

    dtypes and shapes must agree; integers and bools exactly; floats to `tolerance` (default: some
    units in the last place), relative to the largest value, NaN and infinity where eager has them.
    """
    expected = [
        leaf for leaf in pytree.tree_leaves(call(*args, **kwargs)) if isinstance(leaf, torch.Tensor)
    ]
    compare(run(call, *args, **kwargs), expected, tolerance)


def compare(
    ours: Sequence[torch.Tensor], eager: Sequence[torch.Tensor], tolerance: float | None = None
) -> None:
    """See `check`."""
    assert len(ours) == len(eager)
    for index, (mine, theirs) in enumerate(zip(ours, eager, strict=True)):
        name = f"result {index}"
        assert mine.dtype == theirs.dtype, f"{name}: {mine.dtype}, eager {theirs.dtype}"
        assert mine.shape == theirs.shape, f"{name}: {mine.shape}, eager {theirs.shape}"
        if not (theirs.is_floating_point() or theirs.is_complex()):
            assert torch.equal(mine, theirs), f"{name}:\n{mine}\neager\n{theirs}"
            continue
        finite = theirs[torch.isfinite(theirs)]
        scale = float(finite.abs().max()) if finite.numel() else 0.0
        bound = 8 * torch.finfo(theirs.dtype).eps if tolerance is None else tolerance
        torch.testing.assert_close(
            mine,
            theirs,
            rtol=bound,
            atol=bound * scale,
            equal_nan=True,
            msg=lambda text, name=name: f"{name}: {text}",
        )


def _attribute(tensor: torch.Tensor) -> ir.Attribute:
    dense = tensor.detach().contiguous()
    if dense.dtype is torch.bool:
        return ir.DenseElementsAttr.get(
            dense.numpy(), type=ir.IntegerType.get_signless(1), shape=list(dense.shape)
        )
    if dense.dtype is torch.bfloat16:
        return ir.DenseElementsAttr.get(
            dense.view(torch.int16).numpy(), type=ir.BF16Type.get(), shape=list(dense.shape)
        )
    unsigned = dense.dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
    return ir.DenseElementsAttr.get(dense.numpy(), signless=not unsigned)


_Meant = tuple[torch.dtype, tuple[int, ...]]


def _return_carriers(module: ir.Module) -> list[_Meant]:
    """Let `@main` return what NumPy can read; gives the dtypes and shapes meant.

    bfloat16 goes as its bits, bool as bytes, complex as two results.
    """
    main = module.body.operations[0]
    block = main.regions[0].blocks[0]
    terminator = list(block.operations)[-1]
    meant, returned = [], []
    with ir.InsertionPoint(terminator):
        for value in terminator.operands:
            ranked = ir.RankedTensorType(value.type)
            dtype = _DTYPES[str(ranked.element_type)]
            meant.append((dtype, tuple(ranked.shape)))
            for name, element in _CARRIERS.get(dtype, ()):
                type_ = ir.RankedTensorType.get(ranked.shape, ir.Type.parse(element))
                op = ir.Operation.create(name, results=[type_], operands=[value])
                returned.append(op.result)
            if dtype not in _CARRIERS:
                returned.append(value)
        ir.Operation.create("func.return", operands=returned)
    terminator.erase()
    signature = ir.FunctionType.get(
        [argument.type for argument in block.arguments], [value.type for value in returned]
    )
    main.attributes["function_type"] = ir.TypeAttr.get(signature)
    main.attributes["res_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get({})] * len(returned))
    return meant


_CARRIERS = {
    torch.bfloat16: [("stablehlo.bitcast_convert", "i16")],
    torch.bool: [("stablehlo.convert", "ui8")],
    torch.complex64: [("stablehlo.real", "f32"), ("stablehlo.imag", "f32")],
    torch.complex128: [("stablehlo.real", "f64"), ("stablehlo.imag", "f64")],
}


def _tensors(attributes: Sequence[ir.Attribute], meant: Sequence[_Meant]) -> list[torch.Tensor]:
    rest = iter(attributes)
    tensors = []
    for dtype, shape in meant:
        count = 2 if dtype.is_complex else 1
        parts = [torch.from_numpy(np.array(next(rest)).reshape(shape)) for _ in range(count)]
        tensor = torch.complex(*parts) if dtype.is_complex else parts[0]
        if dtype is torch.bfloat16:
            tensor = tensor.view(torch.bfloat16)
        tensors.append(tensor.to(torch.bool) if dtype is torch.bool else tensor)
    return tensors


_DTYPES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "i1": torch.bool,
    "ui8": torch.uint8,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "ui32": torch.uint32,
    "ui64": torch.uint64,
    "complex<f32>": torch.complex64,
    "complex<f64>": torch.complex128,
}
