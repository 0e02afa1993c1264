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
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree
from torch_mlir import ir

from neuron_compile.lowering import Lowered, decomposition_table, lower
from neuron_compile.lowering.element_types import TypeTable
from tests.lowering.philox import put_bits_in_place
from tests.oracle import evaluate


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
        functional, table = dispatch_functionalize(flat), decomposition_table()
        graph = make_fx(functional, decomposition_table=table)(*fake)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph, tensors


def interpret(
    lowered: Lowered, tensors: Sequence[torch.Tensor], state: tuple[int, int] = (1, 2)
) -> list[torch.Tensor]:
    """Run `@main` in StableHLO's reference interpreter; `state` is the random key and counter."""
    if lowered.uses_random:
        tensors = [*tensors, torch.tensor(state, dtype=torch.uint64)]
    with lowered.module.context, ir.Location.unknown():
        put_bits_in_place(lowered.module, state)
        main = lowered.module.body.operations[0]
        types = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value).results
        dtypes = [TypeTable().describe(type_)[1] for type_ in types]
    arrays = evaluate(lowered.module, [_array(tensor) for tensor in tensors])
    return [_tensor(array, dtype) for array, dtype in zip(arrays, dtypes, strict=True)]


def run(
    call: Callable[..., Any], *args: Any, state: tuple[int, int] = (1, 2), **kwargs: Any
) -> list[torch.Tensor]:
    """The results of a call, by way of lowering and the interpreter."""
    graph, tensors = graph_of(call, args, kwargs)
    return run_graph(graph, tensors, state)


def run_graph(
    graph: torch.fx.GraphModule, tensors: Sequence[torch.Tensor], state: tuple[int, int] = (1, 2)
) -> list[torch.Tensor]:
    """The results of a graph, by way of lowering and the interpreter."""
    made = interpret(lower(graph), tensors, state)
    meant = [node.meta["val"] for node in graph.graph.output_node().args[0]]
    return [
        torch.complex(tensor[..., 0], tensor[..., 1]) if fake.is_complex() else tensor
        for tensor, fake in zip(made, meant, strict=True)
    ]


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


def _array(tensor: torch.Tensor) -> np.ndarray:
    dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if dense.is_complex():
        dense = torch.view_as_real(dense)
    return (dense.view(torch.uint16) if dense.dtype is torch.bfloat16 else dense).numpy()


def _tensor(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))
    return tensor.view(torch.bfloat16) if dtype is torch.bfloat16 else tensor.to(dtype)
