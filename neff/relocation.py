"""What each relocation kind means, for x86-64 and AArch64.

In: a place in the image, the values a relocation may name. Out: the patched bytes. Every rule is a
formula of the psABI written as operand, what is subtracted, and how the result is encoded.
Invariant: a value that does not fit its field is an error, never a truncation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from neuron_compile.errors import CodegenError

_PAGE_BITS = 12  # ADRP counts in 4 KiB pages whatever the page size of the kernel


class Operand(Enum):
    """The address a relocation is about."""

    SYMBOL = auto()  # S: the symbol itself, which must lie in the image
    CALLEE = auto()  # L: the symbol, or a stub that jumps to it if it is external
    SLOT = auto()  # G: the GOT slot that holds the symbol's address
    GOT = auto()  # the start of the GOT


class Minus(Enum):
    """What is subtracted from the operand's address."""

    BASE = auto()  # nothing: only the low bits of the address are used
    PLACE = auto()  # P: where the field is
    PAGE = auto()  # the 4 KiB page of P, from the page of the operand
    GOT = auto()  # the start of the GOT
    LOADED = auto()  # nothing: the field holds an absolute address, which only the loader knows


@dataclass(frozen=True, slots=True)
class Rule:
    """One relocation kind: `encode(image, place, operand + addend - minus)`."""

    name: str
    operand: Operand
    minus: Minus
    encode: Callable[[bytearray, int, int], None]


@dataclass(frozen=True, slots=True)
class Machine:
    """What the linker knows of an instruction set."""

    rules: Mapping[int, Rule]
    page: int  # protection granularity the image is laid out for, in bytes
    stub_bytes: int
    stub: Callable[[int, int], bytes]  # (address of the stub, address of the GOT slot) -> code

    def rule(self, kind: int, symbol: str) -> Rule:
        rule = self.rules.get(kind)
        if rule is None:
            raise CodegenError(
                f"relocation kind {kind} is not supported",
                where=f"reference to {symbol or 'a section'}",
                why="the linker places position-independent code only, without thread-local data",
                remedy="compile with pic=True; if it was, please report the kind and the symbol",
            )
        return rule


def _word64(image: bytearray, place: int, value: int) -> None:
    struct.pack_into("<q", image, place, value)


def _word32(image: bytearray, place: int, value: int) -> None:
    struct.pack_into("<i", image, place, _fits(value, 32))


def _fits(value: int, bits: int) -> int:
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise CodegenError(
            f"a relocated value does not fit in {bits} bits",
            why=f"the distance is {value} bytes; the image is too large for its code model",
        )
    return value


def _low12(scale: int) -> Callable[[bytearray, int, int], None]:
    """The immediate of ADD (scale 1) or of a load or store of `scale` bytes, bits 10 to 21."""

    def encode(image: bytearray, place: int, value: int) -> None:
        offset = value & 0xFFF
        if offset % scale:
            raise CodegenError(f"an address is not aligned to the {scale} bytes its access needs")
        _or_bits(image, place, (offset // scale) << 10)

    return encode


def _page21(image: bytearray, place: int, value: int) -> None:
    """ADRP: a signed count of pages, low 2 bits at bit 29, high 19 bits at bit 5."""
    pages = _fits(value >> _PAGE_BITS, 21) & 0x1FFFFF
    _or_bits(image, place, (pages & 3) << 29 | (pages >> 2) << 5)


def _branch26(image: bytearray, place: int, value: int) -> None:
    _or_bits(image, place, _fits(value, 28) >> 2 & 0x3FFFFFF)


def _or_bits(image: bytearray, place: int, bits: int) -> None:
    (word,) = struct.unpack_from("<I", image, place)
    struct.pack_into("<I", image, place, word | bits)


def _x86_stub(at: int, slot: int) -> bytes:
    """`jmp *slot(%rip)`, padded with int3."""
    return b"\xff\x25" + struct.pack("<i", slot - (at + 6)) + b"\xcc\xcc"


def _aarch64_stub(at: int, slot: int) -> bytes:
    """`adrp x16, slot; ldr x17, [x16, :lo12:slot]; br x17; nop`."""
    code = bytearray(struct.pack("<4I", 0x90000010, 0xF9400211, 0xD61F0220, 0xD503201F))
    _page21(code, 0, (slot >> _PAGE_BITS << _PAGE_BITS) - (at >> _PAGE_BITS << _PAGE_BITS))
    _low12(8)(code, 4, slot)
    return bytes(code)


_S, _L, _G, _GOT = Operand.SYMBOL, Operand.CALLEE, Operand.SLOT, Operand.GOT

# Kinds and formulas: System V psABI for AMD64, table "Relocation Types".
_X86_64 = {
    1: Rule("R_X86_64_64", _S, Minus.LOADED, _word64),
    2: Rule("R_X86_64_PC32", _L, Minus.PLACE, _word32),
    4: Rule("R_X86_64_PLT32", _L, Minus.PLACE, _word32),
    9: Rule("R_X86_64_GOTPCREL", _G, Minus.PLACE, _word32),
    24: Rule("R_X86_64_PC64", _L, Minus.PLACE, _word64),
    25: Rule("R_X86_64_GOTOFF64", _S, Minus.GOT, _word64),
    26: Rule("R_X86_64_GOTPC32", _GOT, Minus.PLACE, _word32),
    27: Rule("R_X86_64_GOT64", _G, Minus.GOT, _word64),
    28: Rule("R_X86_64_GOTPCREL64", _G, Minus.PLACE, _word64),
    29: Rule("R_X86_64_GOTPC64", _GOT, Minus.PLACE, _word64),
    31: Rule("R_X86_64_PLTOFF64", _L, Minus.GOT, _word64),
    41: Rule("R_X86_64_GOTPCRELX", _G, Minus.PLACE, _word32),
    42: Rule("R_X86_64_REX_GOTPCRELX", _G, Minus.PLACE, _word32),
}

# Kinds and formulas: ELF for the Arm 64-bit Architecture (AAELF64), section "Relocation".
_AARCH64 = {
    257: Rule("R_AARCH64_ABS64", _S, Minus.LOADED, _word64),
    260: Rule("R_AARCH64_PREL64", _S, Minus.PLACE, _word64),
    261: Rule("R_AARCH64_PREL32", _S, Minus.PLACE, _word32),
    275: Rule("R_AARCH64_ADR_PREL_PG_HI21", _S, Minus.PAGE, _page21),
    277: Rule("R_AARCH64_ADD_ABS_LO12_NC", _S, Minus.BASE, _low12(1)),
    278: Rule("R_AARCH64_LDST8_ABS_LO12_NC", _S, Minus.BASE, _low12(1)),
    282: Rule("R_AARCH64_JUMP26", _L, Minus.PLACE, _branch26),
    283: Rule("R_AARCH64_CALL26", _L, Minus.PLACE, _branch26),
    284: Rule("R_AARCH64_LDST16_ABS_LO12_NC", _S, Minus.BASE, _low12(2)),
    285: Rule("R_AARCH64_LDST32_ABS_LO12_NC", _S, Minus.BASE, _low12(4)),
    286: Rule("R_AARCH64_LDST64_ABS_LO12_NC", _S, Minus.BASE, _low12(8)),
    299: Rule("R_AARCH64_LDST128_ABS_LO12_NC", _S, Minus.BASE, _low12(16)),
    311: Rule("R_AARCH64_ADR_GOT_PAGE", _G, Minus.PAGE, _page21),
    312: Rule("R_AARCH64_LD64_GOT_LO12_NC", _G, Minus.BASE, _low12(8)),
}

# Keyed by the names pyelftools gives to e_machine. Kernels of AArch64 may use pages of 64 KiB.
MACHINES = {
    "EM_X86_64": Machine(_X86_64, page=4096, stub_bytes=8, stub=_x86_stub),
    "EM_AARCH64": Machine(_AARCH64, page=65536, stub_bytes=16, stub=_aarch64_stub),
}
