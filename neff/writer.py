"""A `Neff` record to the bytes of a file.

In: the whole content. Out: header and tar with the documented members; what the documentation
leaves open is ours and says so (`executable_on_device: false`). Invariant: equal records give equal
bytes: no time, no user, no path, no order of a set.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from typing import Any

from neuron_compile.neff import archive, header
from neuron_compile.neff.check import (
    check_image,
    check_plan,
    check_provenance,
    check_tensor_type,
    is_size,
    require,
)
from neuron_compile.neff.schema import (
    BUILD_VERSION,
    FORMAT,
    HostPlan,
    Neff,
    TensorSpec,
    page_bytes,
)

NEFF_JSON, KELF, INFO = "neff.json", "kelf-0.json", "info.json"
STATS, METRICS, DEF = "hlo_stats.json", "metrics.json", "sg00/def.json"
HOST_BIN, HOST_JSON, PORTABLE = "sg00/host.bin", "sg00/host.json", "stablehlo.mlirbc"
FIXED_MEMBERS = frozenset(
    (NEFF_JSON, KELF, INFO, STATS, METRICS, DEF, HOST_BIN, HOST_JSON, PORTABLE)
)

# The runtime names an executor per node; ours runs on the host's CPU.
_NODE = {"executor": "CPU", "name": "sg00"}
_NPY_ALIGN = 64
# NumPy's names of element types in memory order; bfloat16 has none and is stored as its bits.
_NPY = {
    "bool": "|b1", "uint8": "|u1", "int8": "|i1",
    "uint16": "<u2", "int16": "<i2", "float16": "<f2", "bfloat16": "<u2",
    "uint32": "<u4", "int32": "<i4", "float32": "<f4",
    "uint64": "<u8", "int64": "<i8", "float64": "<f8",
    "complex64": "<c8", "complex128": "<c16",
}  # fmt: skip


def write(neff: Neff) -> bytes:
    """The NEFF file. Raises NeffFormatError if the record contradicts itself."""
    _check(neff)
    members: dict[str, bytes | memoryview] = {
        NEFF_JSON: canonical(_description(neff)),
        STATS: canonical({"MAC_count": neff.macs}),
        **implied_members(neff),
        HOST_JSON: canonical(_host(neff)),
        HOST_BIN: neff.image.code,
        PORTABLE: neff.portable,
    }
    for number, spec in enumerate(neff.plan.constants):
        data = neff.constant_data[number]
        members[constant_member(number)] = b"".join((npy_header(spec), data))
    alignment = {HOST_BIN: page_bytes(neff.target)}
    data = archive.pack(members, alignment, start=header.HEADER_BYTES)
    return header.pack(neff.name, data) + data


def canonical(value: Any) -> bytes:
    """The one JSON text of a value: sorted keys, no spaces, ASCII, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def implied_members(neff: Neff) -> dict[str, bytes]:
    """Members that other tools look for, and that say nothing which the record does not say."""
    info = {
        "executable_on_device": False,
        "num_tpb": 1,
        "producer": "neuron-compile",
        "tool_version": BUILD_VERSION,
    }
    return {
        KELF: canonical(_NODE),
        INFO: canonical(info),
        METRICS: canonical(_metrics(neff)),
        DEF: canonical(_definition(neff.plan)),
    }


def constant_member(number: int) -> str:
    return f"sg00/constant{number}.npy"


def npy_header(spec: TensorSpec) -> bytes:
    """NumPy's file header, version 1.0; the data behind it is 64-byte aligned if the file is."""
    shape = "".join(f"{extent}, " for extent in spec.shape).rstrip(" ")
    if len(spec.shape) != 1:
        shape = shape.removesuffix(",")
    text = f"{{'descr': '{_NPY[spec.dtype]}', 'fortran_order': False, 'shape': ({shape}), }}"
    text += " " * (-(10 + len(text) + 1) % _NPY_ALIGN) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def _check(neff: Neff) -> None:
    for spec in neff.plan.tensors:
        check_tensor_type(spec)
    check_plan(neff.plan)
    check_image(neff.image, page_bytes(neff.target))
    sizes = [len(data) for data in neff.constant_data]
    require(sizes == [c.nbytes for c in neff.plan.constants], "the sizes of the constants", sizes)
    require(is_size(neff.macs), "the count of multiply-accumulates", neff.macs)
    check_provenance(neff.provenance)


def _description(neff: Neff) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "name": neff.name,
        "nodes": [_NODE],
        "provenance": dict(neff.provenance),
    }


def _metrics(neff: Neff) -> dict[str, int]:
    plan = neff.plan
    return {
        "constant_bytes": sum(c.nbytes for c in plan.constants),
        "image_bytes": len(neff.image.code),
        "input_bytes": sum(i.nbytes for i in plan.inputs),
        "kernels": len(plan.kernels),
        "launches": sum(k.launches for k in plan.kernels),
        "output_bytes": sum(o.nbytes for o in plan.outputs),
        "scratch_bytes": plan.scratch_bytes,
    }


def _definition(plan: HostPlan) -> dict[str, Any]:
    """`def.json` with documented fields only; a variable per buffer."""
    variables: dict[str, dict[str, Any]] = {}
    for kind, specs in (("input", plan.inputs), ("output", plan.outputs)):
        for spec in specs:
            variables[spec.name] = {"size": spec.nbytes, "type": kind, "var_id": len(variables)}
    for number, spec in enumerate(plan.constants):
        file_name = constant_member(number).removeprefix("sg00/")
        entry = {"size": spec.nbytes, "type": "file", "var_id": len(variables)}
        variables[spec.name] = entry | {"file_name": file_name}
    if plan.scratch_bytes:
        name = "scratch"
        while name in variables:
            name += "_"
        entry = {"size": plan.scratch_bytes, "type": "tmp-buf", "var_id": len(variables)}
        variables[name] = entry | {"alignment": 64}
    return {"dma_queue": {}, "var": variables}


def _host(neff: Neff) -> dict[str, Any]:
    plan, image = neff.plan, neff.image
    # Tensors name a row of this table: a large model has hundreds of them but few types.
    types = {kind: row for row, kind in enumerate(dict.fromkeys(map(_type, plan.tensors)))}

    def rows(specs: Iterable[TensorSpec]) -> list[tuple[str, int]]:
        return [(spec.name, types[_type(spec)]) for spec in specs]

    return {
        "checks": plan.checks,
        "constants": rows(plan.constants),
        "exports": dict(image.exports),
        "format": FORMAT,
        "got": image.got,
        "got_range": image.got_range,
        "in_place": plan.in_place,
        "inputs": rows(plan.inputs),
        "kernels": [
            {"kind": k.kind, "launches": k.launches, "locations": k.locations, "name": k.name}
            for k in plan.kernels
        ],
        "outputs": rows(plan.outputs),
        "relocations": image.relocations,
        "scratch_bytes": plan.scratch_bytes,
        "target": {"features": neff.target.features, "isa": neff.target.isa},
        "text_end": image.text_end,
        "types": list(types),
        "uses_random": plan.uses_random,
    }


def _type(spec: TensorSpec) -> tuple[str, tuple[int, ...], tuple[int, ...], int]:
    return spec.dtype, spec.shape, spec.strides, spec.nbytes
