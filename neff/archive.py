"""The payload of a NEFF: an uncompressed tar whose bytes follow from its content alone.

In: members by name. Out: the tar, and views into it by name. Invariant: names ascend, so none can
occur twice; owner, mode and time are constants, so the reader demands each header byte for byte.
Where alignment is asked for, a comment record (which tar programs skip) fills the gap.
"""

from __future__ import annotations

from collections.abc import Mapping

from neuron_compile.errors import NeffFormatError

_BLOCK = 512
_END = bytes(2 * _BLOCK)
_MAX_MEMBER = 8**11 - 1  # eleven octal digits
_COMMENT = "comment"


def pack(members: Mapping[str, bytes | memoryview], align: Mapping[str, int], start: int) -> bytes:
    """Write members in the order of their names; `start` is the offset of the tar in its file.

    A name in `align` gets its content at a multiple of that many bytes (a power of two above 2048)
    in the file.
    """
    out = bytearray()
    for name in sorted(members):
        if name in align:
            out += _filler(start + len(out), align[name])
        content = members[name]
        out += _header(name, len(content), b"0")
        out += content
        out += bytes(-len(content) % _BLOCK)
    return bytes(out + _END)


def unpack(tar: memoryview) -> dict[str, memoryview]:
    """Views of all members. Raises NeffFormatError for any tar that `pack` would not write."""
    members: dict[str, memoryview] = {}
    at = 0
    last = ""
    while tar[at : at + _BLOCK] != _END[:_BLOCK]:
        name, size, kind = _parse_header(tar, at)
        content = tar[at + _BLOCK : at + _BLOCK + size]
        padding = tar[at + _BLOCK + size : at + _BLOCK + size + -size % _BLOCK]
        if len(content) != size or len(padding) != -size % _BLOCK or any(padding):
            raise _damaged(at, f"{name!r} of {size} bytes ends outside the file or is not padded")
        if kind == b"0":
            if name <= last:
                raise _damaged(at, f"{name!r} follows {last!r}: names must ascend")
            members[name] = content
            last = name
        elif bytes(content) != _comment(size):
            raise _damaged(at, "only comment records may stand between members")
        at += _BLOCK + size + len(padding)
    if tar[at:] != _END:
        raise _damaged(at, "the archive does not end with two empty blocks")
    return members


def _filler(at: int, align: int) -> bytes:
    """A comment record after which the next member's content starts at a multiple of `align`."""
    gap = (-at - 2 * _BLOCK) % align
    if gap == align - _BLOCK:  # already aligned after one header: no record is needed
        return b""
    size = gap or align
    return _header(_COMMENT, size, b"x") + _comment(size)


def _comment(size: int) -> bytes:
    """One record of the POSIX pax format, `<length> comment=...`, of exactly `size` bytes."""
    text = f"{size} {_COMMENT}=".encode()
    return text + b"-" * (size - len(text) - 1) + b"\n"


def _header(name: str, size: int, kind: bytes) -> bytes:
    """A ustar header (POSIX.1-1988) with mode 0644, owner 0 and time 0."""
    encoded = name.encode()
    if len(encoded) > 100 or size > _MAX_MEMBER:
        raise NeffFormatError(f"member {name!r} of {size} bytes does not fit in a tar archive")
    block = bytearray(_BLOCK)
    block[0 : len(encoded)] = encoded
    mode, owner, time, blank = b"0000644\0", b"0000000\0", b"00000000000\0", b" " * 8
    block[100:156] = b"".join((mode, owner, owner, b"%011o\0" % size, time, blank))
    block[156:157] = kind
    block[257:265] = b"ustar\x0000"
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def _parse_header(tar: memoryview, at: int) -> tuple[str, int, bytes]:
    block = bytes(tar[at : at + _BLOCK])
    if len(block) != _BLOCK:
        raise _damaged(at, "the archive breaks off")
    digits = block[124:135]
    kind = block[156:157]
    try:
        name = block[:100].rstrip(b"\0").decode("ascii")
        size = int(digits, 8) if digits.isdigit() else -1
    except ValueError as error:
        raise _damaged(at, "name or size of a member is unreadable") from error
    if size < 0 or kind not in (b"0", b"x") or block != _header(name, size, kind):
        raise _damaged(at, f"the header of member {name!r} is not the one we write")
    return name, size, kind


def _damaged(at: int, why: str) -> NeffFormatError:
    return NeffFormatError("the NEFF's archive is damaged", where=f"byte {at} of it", why=why)
