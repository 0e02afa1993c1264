"""`neff/header.py`: the documented header, of any NEFF."""

import struct

import pytest

from neuron_compile.errors import NeffFormatError
from neuron_compile.neff import header


def foreign(**changes) -> bytes:
    """A header with the values of the packager guide's sample, as another tool would write it."""
    fields = {
        "pkg": 2, "size": 1024, "data": 48924, "major": 1, "minor": 0, "build": b"1.0.5939.0",
        "tpbs": 1, "hash": bytes(range(16)), "uuid": bytes(range(16)), "name": b"resnet",
        "requested": 1, "nodes": b"\1", "features": 0x100, "lnc": 1, "pad": b"",
    }  # fmt: skip
    return struct.pack("<5Q128sI32s16s256sI64sQI468s", *(fields | changes).values())


def test_foreign_headers_are_read():
    found = header.parse(foreign() + b"payload")
    assert (found.pkg_version, found.data_size, found.name) == (2, 48924, "resnet")
    assert found.hex_hash == "000102030405060708090a0b0c0d0e0f"
    assert found.feature_bits == 0x100
    assert found.tpb_per_node[:2] == (1, 0)
    assert not found.is_ours
    assert len(header.parse(foreign(pkg=1)).hex_hash) == 64  # sha256


@pytest.mark.parametrize(
    "raw", [b"", bytes(1023), bytes(1024), foreign(size=1000), b"\x7fELF" * 300, b"PK" * 600]
)
def test_other_files_are_not_taken_for_a_neff(raw):
    with pytest.raises(NeffFormatError, match="not a NEFF"):
        header.parse(raw)


def test_texts_that_are_not_utf8_do_no_harm():
    assert header.parse(foreign(name=b"\xff" * 256)).name == "\ufffd" * 256


def test_our_header_follows_from_name_and_data():
    first = header.pack("model", b"data")
    assert first == header.pack("model", b"data")
    found = header.parse(first)
    assert found.is_ours
    assert found.uuid != header.parse(header.pack("model", b"date")).uuid
    assert found.uuid == header.parse(header.pack("other", b"data")).uuid


@pytest.mark.parametrize("name", ["", "a\0b", "n" * 256, "\u00e9" * 128])
def test_names_that_do_not_fit_are_refused(name):
    with pytest.raises(NeffFormatError, match="255 bytes"):
        header.pack(name, b"")
