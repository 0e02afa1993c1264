"""The canonical text of a concrete FX graph, and of the values that stand in it.

In: a GraphModule whose values have static FakeTensors in `meta["val"]`. Out: text, one line for
each node. Invariants: equal text means equal computation (else `Unhashable`), and no node name,
address, device index, source line, order of a set or of a mapping gets into it.
"""

from __future__ import annotations

import enum
import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from types import BuiltinFunctionType, EllipsisType, FunctionType, NoneType
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils._python_dispatch import _disable_current_modes

# Operators whose meaning is not in PyTorch's release carry their schema as well as their name.
_RELEASED_NAMESPACES = frozenset({"aten", "prims"})

# Higher-order operators that are determined by their arguments and subgraphs. It is a list of what
# is known to be safe: others (Triton kernels, for one) pass indices into tables that each process
# fills in its own order.
_HIGHER_ORDER = frozenset(
    {
        "associative_scan",
        "auto_functionalized",
        "auto_functionalized_v2",
        "checkpoint",
        "cond",
        "flex_attention",
        "flex_attention_backward",
        "hints_wrapper",
        "invoke_subgraph",
        "map",
        "map_impl",
        "out_dtype",
        "run_and_save_rng_state",
        "run_with_rng_state",
        "scan",
        "tag_activation_checkpoint",
        "while_loop",
        "while_loop_stack_output",
        "wrap",
        "wrap_activation_checkpoint",
        "wrap_with_autocast",
        "wrap_with_set_grad_enabled",
    }
)

# Modules whose functions are determined by their name and PyTorch's version or Python's rules.
_KNOWN_MODULES = frozenset({"_operator", "math", "builtins", "torch"})


class Unhashable(Exception):  # noqa: N818 - not an error of the user's: the cache is bypassed
    """A value that no two processes could agree on; `where` is the user's file:line, if known."""

    def __init__(self, reason: str, where: str = "") -> None:
        super().__init__(f"{reason} ({where})" if where else reason)
        self.reason = reason
        self.where = where


def graph_text(module: torch.fx.GraphModule) -> str:
    """One line for each node: number, target, arguments. Raises `Unhashable`."""
    return _GraphWriter(module, {}).text()


def value_text(value: object) -> str:
    """The canonical text of a constant: equal text means equal type and value. Raises `Unhashable`.

    Numbers are written as Python writes them, so 1, 1.0 and True differ, and so do 0.0 and -0.0.
    """
    write = _BY_TYPE.get(type(value))
    return _uncommon(value, value_text) if write is None else write(value, value_text)


class _GraphWriter:
    """Writes one graph. `seen`: the texts of its attributes by identity."""

    def __init__(self, module: torch.fx.GraphModule, seen: dict[int, tuple[object, str]]) -> None:
        self._module = module
        self._seen = seen
        self._numbers: dict[torch.fx.Node, str] = {}

    def text(self) -> str:
        lines: list[str] = []
        for node in self._module.graph.nodes:
            try:
                line = self._line(node)
            except Unhashable as error:
                raise Unhashable(error.reason, error.where or user_line(node)) from None
            self._numbers[node] = number = f"%{len(lines)}"
            lines.append(f"{number} = {line}")
        return "\n".join(lines)

    def _line(self, node: torch.fx.Node) -> str:
        if node.op == "get_attr":
            return self._attribute(str(node.target))
        value = self.value
        arguments = [value(argument) for argument in node.args]
        if node.kwargs:
            arguments += [f"{name}={value(node.kwargs[name])}" for name in sorted(node.kwargs)]
        return f"{self._head(node)}({', '.join(arguments)})"

    def _head(self, node: torch.fx.Node) -> str:
        if node.op == "call_function":
            return target_text(node.target)
        if node.op == "call_method":
            return f"method {node.target}"
        if node.op in ("placeholder", "output"):
            return node.op
        raise Unhashable(f"the graph calls the module {node.target!r}")

    def value(self, value: Any) -> str:
        if type(value) is torch.fx.Node:
            return self._numbers[value]
        write = _BY_TYPE.get(type(value))
        return _uncommon(value, self.value) if write is None else write(value, self.value)

    def _attribute(self, name: str) -> str:
        try:
            found = reduce(getattr, name.split("."), self._module)
        except AttributeError:
            raise Unhashable(f"the graph has no attribute {name!r}") from None
        seen = self._seen.get(id(found))
        if seen is None:
            # The object is kept as well: another could get the identity of one that is gone.
            self._seen[id(found)] = seen = (found, self._attribute_text(found))
        return seen[1]

    def _attribute_text(self, found: object) -> str:
        if isinstance(found, torch.fx.GraphModule):
            inner = _GraphWriter(found, self._seen).text()
            return f"graph sha256={hashlib.sha256(inner.encode()).hexdigest()}"
        return f"constant {value_text(found)}"


def user_line(node: torch.fx.Node) -> str:
    """The innermost `file:line` of the user's code that made the node, or an empty string."""
    frames = [
        line for line in (node.stack_trace or "").splitlines() if line.lstrip().startswith("File ")
    ]
    if not frames:
        return ""
    fields = frames[-1].strip().split(", ")
    return f"{fields[0].removeprefix('File ').strip(chr(34))}:{fields[1].removeprefix('line ')}"


_targets: dict[Any, str] = {}


def target_text(target: Any) -> str:
    """The exact name of what a node calls. Raises `Unhashable` for functions of the user's own."""
    text = _targets.get(target)
    if text is None:
        text = _target(target)
        _targets[target] = text
    return text


def _target(target: Any) -> str:
    if isinstance(target, OpOverload):
        if target.namespace in _RELEASED_NAMESPACES:
            return target.name()
        return f"{target.name()} {target._schema}"
    if isinstance(target, HigherOrderOperator):
        if target.name() in _HIGHER_ORDER and type(target).__module__.startswith("torch."):
            return f"higher-order {target.name()}"
        raise Unhashable(f"the higher-order operator {target.name()} may depend on this process")
    if isinstance(target, (BuiltinFunctionType, FunctionType)):
        return _function(target)
    raise Unhashable(f"a call of {_type_name(target)}")


def _function(target: BuiltinFunctionType | FunctionType) -> str:
    module = target.__module__ or "torch"  # PyTorch's own builtins have none
    if module in _KNOWN_MODULES or module.startswith("torch."):
        home: Any = sys.modules.get(module)
        for name in target.__qualname__.split("."):
            home = getattr(home, name, None)
        if home is target or getattr(torch, target.__name__, None) is target:
            return f"{module}.{target.__qualname__}"
    raise Unhashable(f"a call of the Python function {module}.{target.__qualname__}")


Write = Callable[[Any], str]


def _float(value: float, _: Write) -> str:
    # Not-a-number has payloads, which reach the result of a compiled graph.
    return repr(value) if value == value else f"nan:{_bits(value)}"


def _complex(value: complex, _: Write) -> str:
    return f"complex({_float(value.real, _)}, {_float(value.imag, _)})"


def _bits(value: float) -> str:
    import struct

    return struct.pack("<d", value).hex()


def _list(value: Iterable[object], write: Write) -> str:
    return f"[{', '.join([write(item) for item in value])}]"


def _tuple(value: Iterable[object], write: Write) -> str:
    return f"({', '.join([write(item) for item in value])})"


def _set(value: Iterable[object], write: Write) -> str:
    return f"set({', '.join(sorted(write(item) for item in value))})"


def _mapping(value: Mapping[Any, object], write: Write) -> str:
    items = sorted(f"{write(key)}: {write(item)}" for key, item in value.items())
    return f"{{{', '.join(items)}}}"


def _slice(value: slice | range, write: Write) -> str:
    bounds = (value.start, value.stop, value.step)
    return f"{type(value).__name__}({', '.join(write(bound) for bound in bounds)})"


def _symbolic(value: torch.SymInt | torch.SymFloat | torch.SymBool, write: Write) -> str:
    """A symbolic number that has become constant is that constant; others have no value yet."""
    node = value.node
    for constant in (node.maybe_as_int(), node.maybe_as_float(), node.maybe_as_bool()):
        if constant is not None:
            return write(constant)
    raise Unhashable(f"the size {value} is symbolic")


def _tensor(value: torch.Tensor, _: Write) -> str:
    """A constant by content. Raises `Unhashable` for what has no plain bytes."""
    if value.layout is not torch.strided or value.is_quantized:
        raise Unhashable(f"a {value.layout} or quantized tensor as a constant")
    with _disable_current_modes():
        plain = value.detach().resolve_conj().resolve_neg().cpu().contiguous()
        content = hashlib.sha256(plain.reshape(-1).view(torch.uint8).numpy())
    return (
        f"tensor({value.dtype}, {_tuple(value.shape, value_text)}, {value.device.type}, "
        f"sha256={content.hexdigest()})"
    )


def _plain(value: object, _: Write) -> str:
    return str(value)


# By exact type: a subclass may mean anything, so it takes the slow road through `_uncommon`.
_BY_TYPE: dict[type, Callable[[Any, Write], str]] = {
    NoneType: _plain,
    bool: _plain,
    int: _plain,
    float: _float,
    complex: _complex,
    str: lambda value, _: ascii(value),
    bytes: lambda value, _: repr(value),
    EllipsisType: lambda _value, _: "...",
    list: _list,
    torch.fx.immutable_collections.immutable_list: _list,
    tuple: _tuple,
    torch.Size: _tuple,
    dict: _mapping,
    torch.fx.immutable_collections.immutable_dict: _mapping,
    set: _set,
    frozenset: _set,
    slice: _slice,
    range: _slice,
    torch.dtype: _plain,
    torch.layout: _plain,
    torch.memory_format: _plain,
    # The index says which of several equal devices this process happens to use (T146).
    torch.device: lambda value, _: f"device({value.type})",
    torch.SymInt: _symbolic,
    torch.SymFloat: _symbolic,
    torch.SymBool: _symbolic,
    torch.Tensor: _tensor,
    torch.nn.Parameter: _tensor,
}


def _uncommon(value: object, write: Write) -> str:
    if isinstance(value, enum.Enum):
        return f"{_type_name(value)}.{value.name}"
    if isinstance(value, float):  # NumPy's float64, which operators take as a Python float
        return _float(float(value), write)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return f"{_type_name(value)}{_tuple(value, write)}"
    if isinstance(value, (OpOverload, HigherOrderOperator, BuiltinFunctionType, FunctionType)):
        return f"function {target_text(value)}"
    if isinstance(value, type) and value.__module__ == "builtins":
        return f"type {value.__name__}"
    if isinstance(value, torch.Tensor):
        raise Unhashable(f"a constant of the type {_type_name(value)}")
    raise Unhashable(f"a value of the type {_type_name(value)}")


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
