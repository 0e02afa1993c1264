"""Which tensors a graph may hold: dense ones in main memory.

In: a graph with FakeTensors. Out: nothing, or an error that names the tensor and the user's line.
Invariant: no address of another device, and no sparse or quantized layout, reaches native code.
"""

from __future__ import annotations

import re

import torch
import torch.fx

from neuron_compile.errors import LoweringError

_MOVE = 'move the model and its inputs with .to("cpu"), or convert them with .to_dense()'
_HAVE_VALUES = (
    'meta tensors have no values to move: make room with model.to_empty(device="cpu"), load the '
    "weights with model.load_state_dict(...), and make the inputs on the CPU"
)
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def require_cpu(graph: torch.fx.GraphModule) -> None:
    """Raises LoweringError for the first tensor that is not a dense CPU tensor."""
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        for tensor in value if isinstance(value, list | tuple) else (value,):
            if isinstance(tensor, torch.Tensor):
                _require(tensor, node)


def user_line(node: torch.fx.Node) -> str:
    """`file:line` of the innermost frame of the user's program that made the node, or an empty
    text.
    """
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    return ":".join(frames[-1]) if frames else ""


def _require(tensor: torch.Tensor, node: torch.fx.Node) -> None:
    if tensor.device.type == "cpu" and tensor.layout is torch.strided:
        return
    what = "input" if node.op == "placeholder" else "result"
    place = f"on device {tensor.device}" if tensor.device.type != "cpu" else f"with {tensor.layout}"
    meta = tensor.device.type == "meta"
    raise LoweringError(
        f"{what} {node.name} ({tensor.dtype}, shape {tuple(tensor.shape)}) is {place}",
        where=user_line(node),
        why="NEFFs of this backend hold code for the CPU and dense tensors",
        remedy=_HAVE_VALUES if meta else _MOVE,
    )
