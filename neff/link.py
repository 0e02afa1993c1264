"""Relocatable ELF objects to one flat, position-independent image.

In: the objects LLVM wrote. Out: an `Image` in three page-aligned parts: text with call stubs
(executable), constants (read-only), GOT and relocated data (written once by the loader, then
read-only). Invariant: no page is ever both writable and executable; equal input gives equal bytes.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Section

from neuron_compile.errors import CodegenError
from neuron_compile.neff.relocation import MACHINES, Machine, Minus, Operand, Rule
from neuron_compile.neff.schema import Image

_SHF_WRITE, _SHF_ALLOC, _SHF_EXECINSTR, _SHF_TLS = 0x1, 0x2, 0x4, 0x400
_SHN_FIRST_RESERVED = 0xFF00
_STB_LOCAL, _STT_FILE, _STT_TLS = 0, 4, 6
_UNDEFINED = 0
# Unwind tables: nothing is ever thrown through a kernel, and debuggers do not find them anyway.
_UNWIND = (".eh_frame", ".rela.eh_frame")


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    section: int  # number over all objects; _UNDEFINED if it lies in none of them
    value: int
    is_local: bool


@dataclass(frozen=True, slots=True)
class _Fixup:
    section: int
    offset: int
    rule: Rule
    symbol: _Symbol
    addend: int


@dataclass(slots=True)
class _Objects:
    """The content of all objects, their sections numbered consecutively from 1."""

    sections: list[Section | None]
    symbols: list[_Symbol]
    fixups: list[_Fixup]


@dataclass(slots=True)
class _Layout:
    """Where everything lies. Slots and stubs are numbered in the order of first use."""

    image: bytearray
    base: dict[int, int]  # section number -> offset
    text_end: int
    got_start: int
    slots: dict[_Symbol, int] = field(default_factory=dict)
    stubs: dict[_Symbol, int] = field(default_factory=dict)

    def address(self, symbol: _Symbol) -> int | None:
        start = self.base.get(symbol.section)
        return None if start is None else start + symbol.value


def link(objects: bytes | Sequence[bytes], exports: Iterable[str]) -> Image:
    """Link one object file, or several that call each other; `exports` are what a loader may call.

    Raises CodegenError for what a flat image cannot hold: writable or thread-local data, absolute
    addresses in code, relocation kinds that are not position-independent, missing exports.
    """
    parsed = [_open(data) for data in ([objects] if isinstance(objects, bytes) else objects)]
    machine = parsed[0][1]
    if any(other is not machine for _, other in parsed):
        raise CodegenError("cannot link objects for different machines")
    content = _read_all([elf for elf, _ in parsed], machine)
    layout = _lay_out(content.sections, content.fixups, machine)
    relocations = [*_fill_slots(layout), *_apply(content.fixups, layout)]
    _write_stubs(layout, machine)
    return Image(
        code=bytes(layout.image),
        text_end=layout.text_end,
        got=tuple((at, s.name) for s, at in layout.slots.items() if layout.address(s) is None),
        relocations=tuple(sorted(relocations)),
        got_range=(layout.got_start, len(layout.image)),
        exports=_find_exports(content.symbols, layout, exports),
    )


def _open(data: bytes) -> tuple[ELFFile, Machine]:
    try:
        elf = ELFFile(io.BytesIO(data))
        machine = MACHINES.get(elf["e_machine"])
    except ELFError as error:
        raise CodegenError("the object file is not valid ELF", why=str(error)) from error
    if machine is None or elf["e_type"] != "ET_REL" or elf.elfclass != 64:
        raise CodegenError(
            f"cannot link an object of type {elf['e_type']} for {elf['e_machine']}",
            why="only 64-bit relocatable objects for x86-64 and AArch64 are understood",
        )
    return elf, machine


def _read_all(elves: list[ELFFile], machine: Machine) -> _Objects:
    content = _Objects([None], [], [])
    tables = []
    for elf in elves:
        first = len(content.sections)
        sections = list(elf.iter_sections())
        content.sections += sections
        tables.append((first, sections, _read_symbols(elf, sections, first)))
        content.symbols += tables[-1][2]
    defined: dict[str, _Symbol] = {}
    for symbol in content.symbols:
        if not symbol.is_local and symbol.section != _UNDEFINED:
            if symbol.name in defined:
                raise CodegenError(f"two objects define {symbol.name}")
            defined[symbol.name] = symbol
    for first, sections, symbols in tables:
        resolved = [
            defined.get(s.name, s) if s.section == _UNDEFINED and s.name else s for s in symbols
        ]
        content.fixups += _read_fixups(sections, resolved, first, machine)
    return content


def _read_symbols(elf: ELFFile, sections: list[Section], first: int) -> list[_Symbol]:
    """The symbol table, unpacked here: pyelftools needs 30 us for each of thousands of entries."""
    table = elf.get_section_by_name(".symtab")
    if table is None:
        raise CodegenError("the object file has no symbol table")
    names = sections[table["sh_link"]].data()
    symbols = []
    for name, info, _, section, value, _ in struct.iter_unpack("<IBBHQQ", table.data()):
        text = names[name : names.index(b"\0", name)].decode()
        if info & 15 == _STT_TLS:
            raise CodegenError(f"{text} is thread-local data, which an image cannot hold")
        if section >= _SHN_FIRST_RESERVED and info & 15 != _STT_FILE:
            raise CodegenError(f"{text} is a common or absolute symbol, which has no place")
        number = first + section if 0 < section < _SHN_FIRST_RESERVED else _UNDEFINED
        symbols.append(_Symbol(text, number, value, info >> 4 == _STB_LOCAL))
    return symbols


def _read_fixups(
    sections: list[Section], symbols: list[_Symbol], first: int, machine: Machine
) -> list[_Fixup]:
    fixups = []
    for section in sections:
        if section["sh_type"] == "SHT_REL":
            raise CodegenError("relocations without addend are not used by 64-bit ELF")
        if section["sh_type"] != "SHT_RELA" or not _is_kept(sections[section["sh_info"]]):
            continue
        for offset, info, addend in struct.iter_unpack("<QQq", section.data()):
            symbol = symbols[info >> 32]
            rule = machine.rule(info & 0xFFFFFFFF, symbol.name)
            fixups.append(_Fixup(first + section["sh_info"], offset, rule, symbol, addend))
    return fixups


def _is_kept(section: Section) -> bool:
    return bool(
        section["sh_flags"] & _SHF_ALLOC and section["sh_size"] and section.name not in _UNWIND
    )


def _lay_out(sections: list[Section | None], fixups: list[_Fixup], machine: Machine) -> _Layout:
    text, constant, relocated = _classify(sections)
    image = bytearray()
    base: dict[int, int] = {}
    _place(image, base, text)
    external = [f for f in fixups if f.symbol.section == _UNDEFINED]
    stubs = dict.fromkeys(f.symbol for f in external if f.rule.operand is Operand.CALLEE)
    _align(image, machine.stub_bytes)
    stubs_start = len(image)
    image += bytes(machine.stub_bytes * len(stubs))
    _align(image, machine.page)
    text_end = len(image)
    _place(image, base, constant)
    _align(image, machine.page)
    layout = _Layout(image, base, text_end, got_start=len(image))
    slotted = (f.symbol for f in fixups if f.rule.operand is Operand.SLOT)
    for number, symbol in enumerate(dict.fromkeys((*slotted, *stubs))):
        layout.slots[symbol] = layout.got_start + 8 * number
    image += bytes(8 * len(layout.slots))
    _place(image, base, relocated)
    _align(image, machine.page)
    for number, symbol in enumerate(stubs):
        layout.stubs[symbol] = stubs_start + machine.stub_bytes * number
    return layout


_Numbered = list[tuple[int, Section]]


def _classify(
    sections: list[Section | None],
) -> tuple[_Numbered, _Numbered, _Numbered]:
    """Executable, constant, and relocated-then-constant sections; refuses all others."""
    text: _Numbered = []
    constant: _Numbered = []
    relocated: _Numbered = []
    for number, section in enumerate(sections):
        if section is None or not _is_kept(section):
            continue
        flags = section["sh_flags"]
        if flags & _SHF_EXECINSTR and not flags & _SHF_WRITE:
            text.append((number, section))
        elif not flags & (_SHF_WRITE | _SHF_TLS):
            constant.append((number, section))
        elif ".data.rel.ro" in section.name:
            relocated.append((number, section))
        else:
            raise CodegenError(
                f"section {section.name} is writable",
                why="an image is shared by all threads and holds no state of its own",
                remedy="keep mutable data in the arena; mark module globals `constant`",
            )
    return text, constant, relocated


def _place(image: bytearray, base: dict[int, int], sections: _Numbered) -> None:
    for number, section in sections:
        _align(image, max(section["sh_addralign"], 1))
        base[number] = len(image)
        image += section.data()


def _align(image: bytearray, to: int) -> None:
    image += bytes(-len(image) % to)


def _fill_slots(layout: _Layout) -> list[tuple[int, int]]:
    """Slots of symbols inside the image are relative to its base."""
    found = ((slot, layout.address(symbol)) for symbol, slot in layout.slots.items())
    return [(slot, address) for slot, address in found if address is not None]


def _apply(fixups: list[_Fixup], layout: _Layout) -> list[tuple[int, int]]:
    """Patch the image; returns what only the loader can patch as (offset, addend)."""
    at_load = []
    for fixup in fixups:
        place = layout.base[fixup.section] + fixup.offset
        value = _operand(fixup, layout) + fixup.addend
        match fixup.rule.minus:
            case Minus.PLACE:
                value -= place
            case Minus.PAGE:
                value = (value & ~0xFFF) - (place & ~0xFFF)
            case Minus.GOT:
                value -= layout.got_start
            case Minus.LOADED:
                if place < layout.got_start:
                    raise CodegenError(
                        f"{fixup.rule.name} asks for an absolute address in read-only memory",
                        where=f"reference to {fixup.symbol.name or 'a section'}",
                        why="the image must run at any address without being written to",
                        remedy="compile with pic=True",
                    )
                at_load.append((place, value))
                continue
            case Minus.BASE:
                pass
        fixup.rule.encode(layout.image, place, value)
    return at_load


def _operand(fixup: _Fixup, layout: _Layout) -> int:
    symbol = fixup.symbol
    if fixup.rule.operand is Operand.GOT:
        return layout.got_start
    if fixup.rule.operand is Operand.SLOT:
        return layout.slots[symbol]
    address = layout.address(symbol)
    if address is None and fixup.rule.operand is Operand.CALLEE:
        address = layout.stubs.get(symbol)
    if address is None:
        raise CodegenError(
            f"{fixup.rule.name} needs the address of {symbol.name or 'a discarded section'}",
            why="it lies outside the image, and this kind cannot go through the GOT",
        )
    return address


def _write_stubs(layout: _Layout, machine: Machine) -> None:
    for symbol, at in layout.stubs.items():
        code = machine.stub(at, layout.slots[symbol])
        layout.image[at : at + len(code)] = code


def _find_exports(
    symbols: list[_Symbol], layout: _Layout, exports: Iterable[str]
) -> Mapping[str, int]:
    defined = {s.name: layout.address(s) for s in symbols if not s.is_local}
    found = {}
    for name in exports:
        address = defined.get(name)
        if address is None or address >= layout.text_end:
            raise CodegenError(f"the object file defines no function {name!r}")
        found[name] = address
    return MappingProxyType(found)
