"""Small hand-made NEFF records and ways to damage their files that keep the hash right."""

from __future__ import annotations

from collections.abc import Mapping

from neuron_compile.neff import archive, header, reader
from neuron_compile.neff.schema import HostPlan, Image, Kernel, Neff, tensor
from neuron_compile.neff.target import make
from neuron_compile.neff.writer import HOST_BIN

PAGE = 4096
RETURN = b"\xc3"  # x86-64 `ret`: a program that does nothing


def image(pages: int = 3) -> Image:
    """One page of code, the rest constants but for one page of slots."""
    return Image(
        code=RETURN.ljust(PAGE, b"\xcc") + bytes(PAGE * (pages - 1)),
        text_end=PAGE,
        got=((PAGE * (pages - 1), "memcpy"),),
        relocations=((PAGE * (pages - 1) + 8, 16),),
        got_range=(PAGE * (pages - 1), PAGE * pages),
        exports={"run": 0},
    )


def neff() -> Neff:
    """Every kind of field is used: strided and empty tensors, constants, random state."""
    plan = HostPlan(
        inputs=(
            tensor("x", "float32", (2, 3), (1, 2)),
            tensor("empty", "int64", (0, 4)),
            tensor("state", "uint64", (2,)),
        ),
        outputs=(
            tensor("y", "bfloat16", (5,)),
            tensor("z", "bool", ()),
            tensor("x'", "float32", (2, 3), (1, 2)),
        ),
        constants=(tensor("w", "float64", (2,)), tensor("bits", "bfloat16", (3, 1))),
        scratch_bytes=192,
        uses_random=True,
        kernels=(
            Kernel("k0", "loop", 3, ("model.py:7", "model.py:8")),
            Kernel("k1", "sort", 0, ()),
        ),
        in_place=((2, 0),),
        checks=("index out of range",),
    )
    return Neff(
        name="sample",
        target=make("x86-64-v4", ["avx512_bf16"]),
        plan=plan,
        image=image(),
        constant_data=(bytes(range(16)), b"abcdef"),
        provenance={"graph": "0123", "torch": "2.13.0"},
        portable=b"ML\xefR" + bytes(1000),
        macs=42,
    )


def resealed(data: bytes, changes: Mapping[str, bytes | None]) -> bytes:
    """The file with members replaced, added, or (None) removed, and a hash that fits."""
    found: dict[str, bytes | memoryview] = dict(reader.members(data))
    for name, content in changes.items():
        found.pop(name, None)
        if content is not None:
            found[name] = content
    return sealed(archive.pack(found, {HOST_BIN: PAGE}, start=header.HEADER_BYTES))


def sealed(tar: bytes, name: str = "sample") -> bytes:
    """Any payload behind a header that fits it."""
    return header.pack(name, tar) + tar
