"""Functional aten graphs as AOTAutograd makes them, for tests that start behind it.

In: a function of tensors and example tensors. Out: a GraphModule whose nodes have FakeTensors in
`meta["val"]`, flat outputs, and, if asked for, symbolic sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx
from torch.fx.experimental.proxy_tensor import make_fx


def aten_graph(function: Callable[..., Any], *args: Any) -> torch.fx.GraphModule:
    """A static graph; its output is a tuple even for one value."""

    def flat(*args: Any) -> Any:
        result = function(*args)
        return result if isinstance(result, tuple) else (result,)

    return make_fx(flat, tracing_mode="fake")(*args)


def dynamic_graph(function: Callable[..., Any], *args: torch.Tensor) -> torch.fx.GraphModule:
    """The inference graph AOTAutograd makes under `dynamic=True`; leading placeholders are
    SymInts."""
    from torch._dynamo.backends.common import aot_autograd

    found = []

    def keep(graph: torch.fx.GraphModule, _inputs: Any) -> Any:
        found.append(graph)
        return graph.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(function, backend=aot_autograd(fw_compiler=keep), dynamic=True)(*args)
    [graph] = found
    return graph
