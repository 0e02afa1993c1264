"""A stand-in for a loaded executable, so that the front door can be tested without code generation.

In: the graph that would be compiled. Out: an object with `neff.plan` and `run(addresses)` that
computes the same on the same addresses with eager PyTorch. Invariant: it sees nothing but
addresses, as native code does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import SimpleNamespace

import torch
import torch.fx

from neuron_compile.neff.schema import HostPlan, Kernel, TensorSpec, tensor


def described(
    inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], *, uses_random: bool = False
) -> SimpleNamespace:
    """As much of a `Neff` with these buffers as the front door looks at."""
    state = (tensor("state", "uint64", (2,)),) if uses_random else ()
    plan = HostPlan(
        inputs=(*_specs("x", inputs), *state),
        outputs=_specs("y", outputs),
        constants=(),
        scratch_bytes=0,
        uses_random=uses_random,
        kernels=(Kernel("eager", "loop", 3, ()),),
    )
    return SimpleNamespace(name="double", plan=plan)


def _specs(name: str, likes: Sequence[torch.Tensor]) -> tuple[TensorSpec, ...]:
    return tuple(
        tensor(f"{name}{i}", str(t.dtype).removeprefix("torch."), tuple(t.shape), t.stride())
        for i, t in enumerate(likes)
    )


class EagerProgram:
    """Counts its runs in `runs`; raises `failure` instead of computing, if that is set.

    The last `checks` values of the graph are booleans that must be true.
    """

    def __init__(self, graph: torch.fx.GraphModule, checks: int = 0) -> None:
        self._graph = graph
        self._inputs = [n.meta["val"] for n in graph.graph.find_nodes(op="placeholder")]
        made = [n.meta["val"] for n in graph.graph.output_node().args[0]]
        self._outputs = made[: len(made) - checks]
        self.neff = described(self._inputs, self._outputs)
        self.runs = 0
        self.failure: Exception | None = None

    def run(self, addresses: Sequence[int]) -> int:
        self.runs += 1
        if self.failure is not None:
            raise self.failure
        assert len(addresses) == len(self._inputs) + len(self._outputs)
        count = len(self._inputs)
        inputs = [
            at(address, like) for address, like in zip(addresses[:count], self._inputs, strict=True)
        ]
        with torch.no_grad():
            results = torch.fx.Interpreter(self._graph).run(*inputs)
        last = len(self._outputs)
        for number, holds in enumerate(results[last:], 1):
            if not holds:
                return number
        for address, like, result in zip(
            addresses[count:], self._outputs, results[:last], strict=True
        ):
            at(address, like).copy_(result)
        return 0


def at(address: int, like: torch.Tensor) -> torch.Tensor:
    """The tensor of `like`'s dtype, size and strides whose first element is at `address`."""
    if not like.numel():
        return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
    span = 1 + sum((n - 1) * step for n, step in zip(like.shape, like.stride(), strict=True))
    memory = (ctypes.c_char * (span * like.dtype.itemsize)).from_address(address)
    flat = torch.frombuffer(memory, dtype=like.dtype)
    return flat.as_strided(like.shape, like.stride())
