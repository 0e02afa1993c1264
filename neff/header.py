"""The fixed header in front of every NEFF, ours or foreign.

In: 1024 bytes. Out: a `Header` record, and back. Invariant: the offsets are those of the public
documentation of the format (`neff_header_t`, natural C alignment, little-endian); nothing of the
payload is looked at here.
"""

from __future__ import annotations

import hashlib
import struct
import uuid
from dataclasses import dataclass

from neuron_compile.errors import NeffFormatError
from neuron_compile.neff.check import is_text
from neuron_compile.neff.schema import BUILD_VERSION

HEADER_BYTES = 1024
NAME_BYTES = 256
# Selects md5 as the hash; version 1 stands for sha256.
PACKAGE_VERSION = 2

_LAYOUT = struct.Struct("<5Q128sI32s16s256sI64sQI468s")
assert _LAYOUT.size == HEADER_BYTES
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_OID, "neuron-compile.neff")


@dataclass(frozen=True, slots=True)
class Header:
    """The documented fields, in their order. Texts end at the first zero byte."""

    pkg_version: int
    header_size: int
    data_size: int
    version_major: int
    version_minor: int
    build_version: str
    num_tpb: int
    hash: bytes
    uuid: bytes
    name: str
    requested_tpb_count: int
    tpb_per_node: tuple[int, ...]
    feature_bits: int
    lnc_size: int

    @property
    def hex_hash(self) -> str:
        """The digest in hexadecimal: 16 bytes of md5 for package version 2, else 32 of sha256."""
        return (self.hash[:16] if self.pkg_version == PACKAGE_VERSION else self.hash).hex()

    @property
    def is_ours(self) -> bool:
        return self.build_version.startswith("neuron-compile")


def parse(raw: bytes | memoryview) -> Header:
    """Read any NEFF's header; raises NeffFormatError if it cannot be one."""
    if len(raw) < HEADER_BYTES:
        raise NeffFormatError(
            f"not a NEFF: {len(raw)} bytes are shorter than the {HEADER_BYTES} of a header"
        )
    fields = _LAYOUT.unpack(raw[:HEADER_BYTES])
    pkg, header_size, data_size, major, minor, build, tpbs, digest, uid, name = fields[:10]
    if header_size != HEADER_BYTES:
        raise NeffFormatError(
            f"not a NEFF: the header gives its own size as {header_size}, not {HEADER_BYTES}"
        )
    requested, per_node, features, lnc = fields[10:14]
    return Header(
        pkg, header_size, data_size, major, minor, _text(build), tpbs, digest, uid, _text(name),
        requested, tuple(per_node), features, lnc,
    )  # fmt: skip


def pack(name: str, data: bytes | memoryview) -> bytes:
    """The header of one of our files: `data` is the whole payload, `name` the model's."""
    encoded = name.encode() if is_text(name) else b""
    if not encoded or len(encoded) >= NAME_BYTES or b"\0" in encoded:
        raise NeffFormatError(
            f"a model name must be 1 to {NAME_BYTES - 1} bytes of UTF-8, no zeros"
        )
    digest = hashlib.md5(data, usedforsecurity=False)
    return _LAYOUT.pack(
        PACKAGE_VERSION, HEADER_BYTES, len(data), 1, 0, BUILD_VERSION.encode(),
        1, digest.digest(), uuid.uuid5(_NAMESPACE, digest.hexdigest()).bytes, encoded,
        1, b"\1", 0, 1, b"",
    )  # fmt: skip


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "replace")
