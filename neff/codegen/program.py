"""Light records of a group function: what code generation knows of StableHLO.

In: an outlined `func.func` of the module. Out: a `Group` of immutable nodes. MLIR's bindings are
touched only here, so that the generators above are plain Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch_mlir import ir

from neuron_compile.errors import CodegenError
from neuron_compile.neff.codegen.index import contiguous_strides


@dataclass(frozen=True, slots=True)
class Tensor:
    """Shape, element type as in StableHLO (`f32`, `bf16`, `i1`, `ui8`, ...) and strides in
    elements.
    """

    shape: tuple[int, ...]
    elem: str
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        total = 1
        for extent in self.shape:
            total *= extent
        return total

    @property
    def signless(self) -> str:
        """Element type as computed and stored: MLIR arithmetic has no sign in its types."""
        return self.elem[1:] if self.elem.startswith("ui") else self.elem

    @property
    def stored(self) -> str:
        """Element type in memory. bfloat16 travels as bits: not every target computes with it."""
        return "i16" if self.elem == "bf16" else self.signless

    @property
    def unsigned(self) -> bool:
        return self.elem.startswith("ui")


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A reduction's or sort's body on scalars."""

    arguments: tuple[Node, ...]
    results: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One result of one operation. Nodes of the same operation share `operation`."""

    op: str
    operands: tuple[Node, ...]
    tensor: Tensor
    attributes: Mapping[str, Any] = field(default_factory=dict)
    regions: tuple[Region, ...] = ()
    result: int = 0
    operation: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def elem(self) -> str:
        return self.tensor.elem


@dataclass(frozen=True, slots=True)
class Group:
    """A private function: `parameters` are nodes with op `parameter` and attribute `number`."""

    name: str
    kind: str
    parameters: tuple[Node, ...]
    results: tuple[Node, ...]
    outputs: tuple[Tensor, ...]  # layouts of the results
    locations: tuple[str, ...]

    def nodes(self) -> Iterator[Node]:
        """Every node that a result needs, operands first."""
        return postorder(self.results)


def postorder(
    roots: tuple[Node, ...], is_leaf: Callable[[Node], bool] = lambda _: False
) -> Iterator[Node]:
    """Every node below `roots` once, operands first; nothing below a leaf."""
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            if not is_leaf(node):
                stack.extend((o, False) for o in reversed(node.operands) if o not in seen)


def tensor_of(type_: ir.Type, strides: tuple[int, ...] | None = None) -> Tensor:
    ranked = ir.RankedTensorType(type_)
    shape = tuple(ranked.shape)
    return Tensor(
        shape,
        str(ranked.element_type),
        strides if strides is not None else contiguous_strides(shape),
    )


def strides_of(attributes: ir.ArrayAttr | None, position: int) -> tuple[int, ...] | None:
    """`neuron.strides` of argument or result number `position`, None where row-major."""
    if attributes is None:
        return None
    entry = ir.DictAttr(attributes[position])
    if "neuron.strides" not in entry:
        return None
    return tuple(ir.DenseI64ArrayAttr(entry["neuron.strides"]))


def read_group(function: Any) -> Group:
    """Records of one outlined `func.func`."""
    name = ir.StringAttr(function.attributes["sym_name"]).value
    block = function.regions[0].blocks[0]
    arguments = attribute_array(function, "arg_attrs")
    results = attribute_array(function, "res_attrs")
    parameters = tuple(
        Node("parameter", (), tensor_of(a.type, strides_of(arguments, i)), {"number": i})
        for i, a in enumerate(block.arguments)
    )
    reader = _Reader(dict(zip(block.arguments, parameters, strict=True)))
    returned = reader.block(block)
    outputs = tuple(
        Tensor(r.shape, r.elem, strides_of(results, i) or contiguous_strides(r.shape))
        for i, r in enumerate(returned)
    )
    kind = ir.StringAttr(function.attributes["neuron.kind"]).value
    return Group(name, kind, parameters, returned, outputs, tuple(reader.locations))


def attribute_array(function: Any, name: str) -> ir.ArrayAttr | None:
    """An optional array attribute of a function, e.g. `arg_attrs`."""
    return ir.ArrayAttr(function.attributes[name]) if name in function.attributes else None


class _Reader:
    """Reads a block's operations in order into nodes."""

    def __init__(self, known: dict[Any, Node]) -> None:
        self.known = known
        self.locations: dict[str, None] = {}
        self._operations = 0

    def block(self, block: Any) -> tuple[Node, ...]:
        for op in block.operations:
            operation = op.operation
            if operation.name in ("func.return", "stablehlo.return"):
                return tuple(self.known[v] for v in operation.operands)
            self._read(operation)
        raise CodegenError("a group function has no return")

    def _read(self, operation: Any) -> None:
        self._operations += 1
        number = self._operations
        operands = tuple(self.known[v] for v in operation.operands)
        attributes = _attributes(operation)
        if len(operation.results) > 1:
            attributes["results"] = tuple(tensor_of(r.type) for r in operation.results)
        regions = tuple(self._region(r) for r in operation.regions if len(r.blocks))
        location = _file_line(operation.location)
        if location:
            self.locations[location] = None
        for i, result in enumerate(operation.results):
            self.known[result] = Node(
                operation.name, operands, tensor_of(result.type), attributes, regions, i, number
            )

    def _region(self, region: Any) -> Region:
        block = region.blocks[0]
        arguments = tuple(
            Node("argument", (), tensor_of(a.type), {"number": i})
            for i, a in enumerate(block.arguments)
        )
        self.known.update(zip(block.arguments, arguments, strict=True))
        return Region(arguments, self.block(block))


_LOCATION = re.compile(r'"([^"]+)":(\d+)')


def _file_line(location: ir.Location) -> str:
    found = _LOCATION.search(str(location))
    return f"{found[1]}:{found[2]}" if found else ""


def _attributes(operation: Any) -> dict[str, Any]:
    """By name, decoded; of a constant with equal elements only one, which broadcasts to the shape:
    the minus infinity of a mask may fill more memory than all the rest of a compilation.
    """
    found = operation.attributes
    if operation.name == "stablehlo.constant" and found["value"].is_splat:
        return {"value": _splat(found["value"])}
    return {name: decode(found[name]) for name in found}


_FIELD = re.compile(r"(\w+) = (\[[^\]]*\]|-?\d+)")


def decode(attribute: ir.Attribute) -> Any:
    """Python value of an attribute; StableHLO's own attributes become dicts or plain strings."""
    if isinstance(attribute, ir.DenseElementsAttr):
        return dense_array(attribute)
    if isinstance(attribute, ir.DenseI64ArrayAttr | ir.DenseBoolArrayAttr):
        return tuple(attribute)
    if isinstance(attribute, ir.BoolAttr | ir.IntegerAttr | ir.FloatAttr | ir.StringAttr):
        return attribute.value
    if isinstance(attribute, ir.ArrayAttr):
        return tuple(decode(a) for a in attribute)
    if isinstance(attribute, ir.TypeAttr):
        return str(attribute.value)
    return decode_text(str(attribute))


def decode_text(text: str) -> Any:
    """`#stablehlo<comparison_direction GT>` -> "GT".

    `#stablehlo.gather<a = [0], b = 1>` -> {"a": (0,), "b": 1}.
    """
    body = text[text.find("<") + 1 : text.rfind(">")] if "<" in text else text
    if text.startswith("#stablehlo.conv"):
        return _convolution_layout(body)
    fields = _FIELD.findall(body)
    if fields:
        return {
            k: tuple(int(x) for x in v[1:-1].split(",") if x.strip())
            if v.startswith("[")
            else int(v)
            for k, v in fields
        }
    if text.startswith("#stablehlo.") and "=" not in body and " " not in body.strip():
        return {} if not body.strip() else body.strip()
    return body.split()[-1] if body else ""


def _convolution_layout(body: str) -> dict[str, Any]:
    """`[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]` -> {"lhs": (...), "rhs": (...), "out": (...)}."""
    parts = re.findall(r"\[([^\]]*)\]", body)
    names = [tuple(x.strip() for x in part.split(",")) for part in parts]
    return {"lhs": names[0], "rhs": names[1], "out": names[2]}


_NUMPY: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f16": np.dtype(np.float16),
    "i1": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "ui8": np.dtype(np.uint8),
    "ui16": np.dtype(np.uint16),
    "ui32": np.dtype(np.uint32),
    "ui64": np.dtype(np.uint64),
}


def dense_array(attribute: ir.DenseElementsAttr) -> np.ndarray[Any, Any]:
    """Elements as NumPy; bfloat16 is widened to float32, which is exact."""
    ranked = ir.RankedTensorType(attribute.type)
    elem, shape = str(ranked.element_type), tuple(ranked.shape)
    if attribute.is_splat:
        return np.full(shape, _splat(attribute))
    if elem == "bf16":
        return _bfloat16_elements(str(attribute)).reshape(shape)
    return np.array(attribute).astype(_NUMPY[elem]).reshape(shape)


def _splat(attribute: ir.DenseElementsAttr) -> np.ndarray[Any, Any]:
    """The element that all others equal, as an array without dimensions."""
    elem = str(ir.RankedTensorType(attribute.type).element_type)
    return np.array(_scalar(attribute.get_splat_value(), elem))


def _bfloat16_elements(text: str) -> np.ndarray[Any, Any]:
    """Elements out of the printed attribute: the bindings share no buffer of a type NumPy lacks."""
    body = text[text.index("<") + 1 : text.rindex("> :")]
    if body.startswith('"0x'):
        bits = np.frombuffer(bytes.fromhex(body[3:-1]), np.uint16)
        return (bits.astype(np.uint32) << 16).view(np.float32)
    words = re.findall(r"0x[0-9A-Fa-f]+|[-+0-9.eE]+", body)
    wide = [int(w, 16) << 16 if w.startswith("0x") else _float32_bits(float(w)) for w in words]
    return np.array(wide, np.uint32).view(np.float32)


def _float32_bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def _scalar(attribute: ir.Attribute, elem: str) -> Any:
    value = attribute.value  # type: ignore[attr-defined]
    if elem == "bf16":
        return np.float32(value)
    kind = _NUMPY[elem]
    if kind.kind == "u":
        value = int(value) & ((1 << (8 * kind.itemsize)) - 1)
    return kind.type(value)
