"""A minimal writer of relocatable ELF objects, to make what LLVM on this machine would not.

In: sections, symbols, relocations. Out: the bytes of the object.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

ALLOC, WRITE, EXECUTE, TLS = 2, 1, 4, 0x400
X86_64, AARCH64 = 62, 183


@dataclass
class Section:
    name: str
    data: bytes
    flags: int
    align: int = 16
    relocations: list[tuple[int, int, str, int]] = field(default_factory=list)


def build(
    machine: int, sections: list[Section], symbols: dict[str, tuple[str, int]], kind: int = 1
) -> bytes:
    """`symbols`: name -> (section or "", offset); a relocation: (offset, kind, symbol, addend)."""
    numbers = {section.name: number + 1 for number, section in enumerate(sections)}
    names = bytearray(b"\0")
    table = bytes(24)
    order = {}
    for number, (name, (section, value)) in enumerate(symbols.items(), 1):
        order[name] = number
        table += struct.pack("<IBBHQQ", len(names), 0x12, 0, numbers.get(section, 0), value, 0)
        names += name.encode() + b"\0"
    rows = [(s.name, 1, s.flags, s.data, 0, 0, s.align, 0) for s in sections]
    symtab = len(sections) + 1
    rows += [(".symtab", 2, 0, table, symtab + 1, 1, 8, 24), (".strtab", 3, 0, names, 0, 0, 1, 0)]
    for section in sections:
        if section.relocations:
            data = b"".join(
                struct.pack("<QQq", at, order[symbol] << 32 | relocation, addend)
                for at, relocation, symbol, addend in section.relocations
            )
            name = ".rela" + section.name
            rows.append((name, 4, 0, data, symtab, numbers[section.name], 8, 24))
    return _file(machine, kind, rows)


def _file(machine: int, kind: int, rows: list[tuple]) -> bytes:
    strings = bytearray(b"\0")
    body = bytearray(64)
    headers = bytes(64)
    for name, section_kind, flags, data, link, info, align, entry in [
        *rows, (".shstrtab", 3, 0, None, 0, 0, 1, 0),
    ]:  # fmt: skip
        offset = len(strings)
        strings += name.encode() + b"\0"
        content = bytes(strings) if data is None else data
        body += bytes(-len(body) % 16)
        headers += struct.pack(
            "<IIQQQQIIQQ", offset, section_kind, flags, 0, len(body), len(content), link, info,
            align, entry,
        )  # fmt: skip
        body += content
    body += bytes(-len(body) % 8)
    count = len(headers) // 64
    start = len(body)
    struct.pack_into(
        "<4sBBB9xHHIQQQIHHHHHH", body, 0, b"\x7fELF", 2, 1, 1, kind, machine, 1, 0, 0, start, 0,
        64, 0, 0, 64, count, count - 1,
    )  # fmt: skip
    return bytes(body) + headers
