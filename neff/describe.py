"""What a NEFF says about itself, for people and for tools; and its members as files.

In: a path or bytes. Out: plain data, the same as text, or a folder. Invariant: of a foreign NEFF
only the documented header is read; nothing is ever executed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from neuron_compile.cache.notes import WEIGHT, is_note, recorded_notes
from neuron_compile.neff import header
from neuron_compile.neff.reader import Source, content, members, names_the_file, read
from neuron_compile.neff.schema import Neff, TensorSpec

# Columns of the table of nodes, as `neuron-packager info` prints them.
COLUMNS = (
    "NODE", "Executor", "Name", "Variable", "Size", "Type", "Format", "Shape", "DataType",
    "TimeSeries",
)  # fmt: skip
_NEWLINE, _CONTINUED = "\n", "      "
_FORMAT_OF_RANK = {1: "N", 2: "NC"}


def describe(source: Source) -> dict[str, Any]:
    """Header, and for our own files nodes, kernels, target, memory and provenance, as JSON data.

    Raises NeffFormatError if the bytes cannot be a NEFF, or are ours and damaged.
    """
    with names_the_file(source):
        found = header.parse(content(source)[: header.HEADER_BYTES])
    described: dict[str, Any] = {"header": _header(found), "is_ours": found.is_ours}
    if found.is_ours:
        described |= _inside(read(source))
    return described


def as_text(described: Mapping[str, Any]) -> str:
    """The blocks that `neuron-packager info` prints, and below them what only our files have."""
    lines = ["NEFF Header:"]
    lines += [f"  {name + ':':<24}{value}" for name, value in described["header"].items()]
    if not described["is_ours"]:
        lines += ["", "Not written by neuron-compile: only its header is understood."]
        return "\n".join(lines) + "\n"
    lines += ["", "NEFF Nodes:"]
    lines += _table(COLUMNS, [[row[c] for c in COLUMNS] for row in described["nodes"]])
    facts = {k: described[k] for k in ("target", "code_bytes", "scratch_bytes", "macs")}
    lines += _first_compiled_for(described)
    lines += ["", "Program:", *(f"  {name + ':':<24}{value}" for name, value in facts.items())]
    lines += ["", "Kernels:"]
    kernels = described["kernels"]
    rows = [[k["name"], k["kind"], k["launches"], ", ".join(k["locations"])] for k in kernels]
    lines += _table(("Name", "Kind", "Launches", "From"), rows)
    lines += ["", "Provenance:"]
    lines += [
        f"  {name}: {text.rstrip().replace(_NEWLINE, _NEWLINE + _CONTINUED)}"
        for name, text in sorted(described["provenance"].items())
        if not is_note(name)
    ]
    return "\n".join(lines) + "\n"


def unpack(source: Source, folder: str | os.PathLike[str]) -> list[Path]:
    """Write the members of one of our files below `folder`; returns the paths, sorted by name.

    The names come from the fixed list of members, so none can lead out of the folder.
    """
    written = []
    with names_the_file(source):
        parts = members(source)
    for name, data in parts.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        written.append(path)
    return written


def _first_compiled_for(described: Mapping[str, Any]) -> list[str]:
    """Whose graph it is and what the inputs are called there. Others may share the NEFF, so these
    names are no part of the nodes.
    """
    notes = recorded_notes(described["provenance"])
    title = f"First compiled for {notes.function}" if notes.function else "First compiled"
    inputs = [row["Variable"] for row in described["nodes"] if row["Type"] == "IN"]
    named = [
        (variable, note.name, note.role if note.role == WEIGHT else "")
        for variable, note in zip(inputs, notes.inputs, strict=False)  # random state has no note
        if note.name
    ]
    if not named:
        return ["", title] if notes.function else []
    return ["", f"{title}, with these inputs:", *_table(("Variable", "Was", ""), named)]


def _header(found: header.Header) -> dict[str, Any]:
    return {
        "Package Version": found.pkg_version,
        "Header Size": found.header_size,
        "Data Size": found.data_size,
        "Major Version": found.version_major,
        "Minor Version": found.version_minor,
        "Build Version": found.build_version,
        "Number of Neuron cores": found.num_tpb,
        "Hash": found.hex_hash,
        "UUID": str(UUID(bytes=found.uuid)),
        "Network Name": found.name,
        # The names of the bits are not public.
        "Enabled Features": f"{found.feature_bits:#x}" if found.feature_bits else "none",
    }


def _inside(neff: Neff) -> dict[str, Any]:
    plan = neff.plan
    nodes = [_node(spec, "IN") for spec in plan.inputs]
    nodes += [_node(spec, "OUT") for spec in plan.outputs]
    return {
        "nodes": nodes,
        "target": neff.target.name,
        "code_bytes": neff.image.text_end,
        "scratch_bytes": plan.scratch_bytes,
        "constant_bytes": sum(spec.nbytes for spec in plan.constants),
        "uses_random": plan.uses_random,
        "macs": neff.macs,
        "kernels": [
            {
                "name": kernel.name,
                "kind": kernel.kind,
                "launches": kernel.launches,
                "locations": list(kernel.locations),
            }
            for kernel in plan.kernels
        ],
        "provenance": dict(neff.provenance),
    }


def _node(spec: TensorSpec, direction: str) -> dict[str, Any]:
    return {
        "NODE": 1,
        "Executor": "CPU",
        "Name": "sg00",
        "Variable": spec.name,
        "Size": spec.nbytes,
        "Type": direction,
        "Format": _FORMAT_OF_RANK.get(len(spec.shape), ""),
        "Shape": list(spec.shape),
        "DataType": spec.dtype,
        "TimeSeries": False if direction == "OUT" else "",
    }


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    cells = [list(columns), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
