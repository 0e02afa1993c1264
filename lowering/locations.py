"""Where in the user's program an FX node comes from.

In: FX nodes with `stack_trace` and `nn_module_stack` in their meta. Out: MLIR locations and the
`file:line` text for messages. Invariant: a frame inside the torch package is only named when
there is no other.
"""

from __future__ import annotations

import functools
import os
import re

import torch
import torch.fx
from torch_mlir import ir

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_TORCH_ROOT = os.path.dirname(torch.__file__) + os.sep


@functools.lru_cache(maxsize=4096)
def _user_frame(stack_trace: str) -> tuple[str, int] | None:
    frames = _FRAME.findall(stack_trace)
    users = [frame for frame in frames if not frame[0].startswith(_TORCH_ROOT)]
    # Traces read outer to inner, so the last user frame is the line that made the op.
    chosen = users or frames
    return (chosen[-1][0], int(chosen[-1][1])) if chosen else None


def source_line(node: torch.fx.Node) -> tuple[str, int] | None:
    """(file, line) of the innermost frame outside torch, or None when the node has no trace."""
    stack_trace = node.meta.get("stack_trace")
    return _user_frame(stack_trace) if stack_trace else None


def location(node: torch.fx.Node, context: ir.Context) -> ir.Location | None:
    """The node's FileLineColLoc, or None when the node has no trace.

    MLIR holds UTF-8; other bytes of a file's name (Python's surrogates) become question marks.
    """
    line = source_line(node)
    if line is None:
        return None
    name = line[0].encode("utf-8", "replace").decode()
    return ir.Location.file(name, line[1], 0, context=context)


def describe(node: torch.fx.Node) -> str:
    """`file:line`, with the path of the owning module where known: for messages."""
    line = source_line(node)
    text = f"{line[0]}:{line[1]}" if line else "unknown source line"
    stack = node.meta.get("nn_module_stack")
    if stack:
        path = list(stack.values())[-1][0]
        if path:
            text += f" (in {path})"
    return text
