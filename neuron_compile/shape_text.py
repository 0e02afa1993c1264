"""The shape signature of a concrete FX graph.

In: a GraphModule with FakeTensors in `meta["val"]`. Out: `name: value` lines: dtype, shape and
strides of each input, and digests over those of the outputs and of all values between. Invariant:
strides that address nothing (of one element, or of no element) do not count for inputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache

import torch

from neuron_compile.graph_text import Unhashable, user_line, value_text


def signature_text(module: torch.fx.GraphModule) -> str:
    """One line for each input, then `outputs` and `values`. Raises `Unhashable`.

    Whether an input overlaps itself follows from its shape and strides; whether two inputs overlap
    each other is AOTAutograd's knowledge and part of the graph's key. The values between follow
    from the inputs, too, unless a default (torch.set_default_dtype) or a custom operator's shape
    function has changed: hence their digest.
    """
    inputs: list[str] = []
    values: list[str] = []
    outputs: list[str] = []
    for node in module.graph.nodes:
        try:
            if node.op == "placeholder":
                inputs.append(f"input {len(inputs)}: {_input_text(node.meta.get('val'))}")
            elif node.op == "output":
                # Exact strides: the caller sees them, also those of sizes one.
                outputs += [_exact_text(value) for value in _flat(node.args)]
            else:
                values.append(_value_text(node.meta.get("val")))
        except Unhashable as error:
            raise Unhashable(error.reason, error.where or user_line(node)) from None
    return "\n".join([*inputs, f"outputs: {_sha256(outputs)}", f"values: {_sha256(values)}"])


def tensor_text(value: torch.Tensor) -> str:
    """`float32[8, 128]`, and `{1, 8}` behind it where the strides are not those of row-major order.

    Strides are in elements; `_` stands for one that addresses nothing.
    """
    if value.layout is not torch.strided:
        raise Unhashable(f"a tensor of the layout {value.layout}")
    shape = tuple([_static(size) for size in value.shape])
    strides = tuple([_static(stride) for stride in value.stride()])
    return _dense_text(value.dtype, shape, strides)


@lru_cache(maxsize=65536)
def _dense_text(dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> str:
    text = f"{str(dtype).removeprefix('torch.')}{list(shape)}"
    if _row_major(shape, strides):
        return text
    shown = ("_" if size == 1 else str(stride) for size, stride in zip(shape, strides, strict=True))
    return f"{text}{{{', '.join(shown)}}}"


def _row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    if 0 in shape:
        return True
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _static(size: int | torch.SymInt) -> int:
    if isinstance(size, int):
        return size
    constant = size.node.maybe_as_int()
    if constant is None:
        raise Unhashable(f"the size {size} is symbolic")
    return int(constant)


def _input_text(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return tensor_text(value) + _marks(value)
    if value is None:
        raise Unhashable("an input without a known shape")
    return value_text(value)


def _exact_text(node: object) -> str:
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else node
    if isinstance(value, torch.Tensor):
        strides = [_static(stride) for stride in value.stride()]
        return f"{tensor_text(value)} {strides}{_marks(value)}"
    return _value_text(value)


def _value_text(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return tensor_text(value)
    if isinstance(value, (tuple, list)):
        return f"({', '.join(_value_text(item) for item in value)})"
    if isinstance(value, (int, float, complex, torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value_text(value)
    return type(value).__qualname__


def _marks(value: torch.Tensor) -> str:
    """The kind of device if not the CPU, and whether it is lazily conjugated or negated."""
    device = value.device.type
    marks = [] if device == "cpu" else [device]
    marks += ["conjugated"] if value.is_conj() else []
    marks += ["negated"] if value.is_neg() else []
    return "".join(f" {mark}" for mark in marks)


def _flat(value: object) -> Iterator[object]:
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _flat(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _flat(item)
    else:
        yield value


def _sha256(texts: list[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
