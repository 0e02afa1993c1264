"""`neff/writer.py`: deterministic bytes in the documented container, readable by other tools."""

import dataclasses
import hashlib
import io
import json
import shutil
import struct
import subprocess
import tarfile
import uuid

import numpy as np
import pytest

from neuron_compile.errors import NeffFormatError
from neuron_compile.neff.schema import Kernel, tensor
from neuron_compile.neff.target import make
from neuron_compile.neff.writer import npy_header, write
from tests.neff.samples import PAGE, image, neff


def tar_of(data: bytes) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(data[1024:]))


def member(data: bytes, name: str) -> bytes:
    file = tar_of(data).extractfile(name)
    assert file is not None
    return file.read()


def test_the_header_has_the_documented_fields_at_the_documented_offsets():
    data = write(neff())
    assert struct.unpack_from("<5Q", data) == (2, 1024, len(data) - 1024, 1, 0)
    assert data[40:168].rstrip(b"\0") == b"neuron-compile format 3"
    assert struct.unpack_from("<I", data, 168) == (1,)
    assert data[172:188] == hashlib.md5(data[1024:]).digest()
    assert data[188:204] == bytes(16)
    assert uuid.UUID(bytes=data[204:220]).version == 5
    assert data[220:476].rstrip(b"\0") == b"sample"
    assert struct.unpack_from("<I", data, 476) == (1,)
    assert data[480:544] == b"\1" + bytes(63)
    assert struct.unpack_from("<QI", data, 544) == (0, 1)
    assert not any(data[556:1024])


def test_members_are_sorted_and_owned_by_nobody_at_no_time():
    found = tar_of(write(neff())).getmembers()
    assert [m.name for m in found] == [
        "hlo_stats.json", "info.json", "kelf-0.json", "metrics.json", "neff.json",
        "sg00/constant0.npy", "sg00/constant1.npy", "sg00/def.json", "sg00/host.bin",
        "sg00/host.json", "stablehlo.mlirbc",
    ]  # fmt: skip
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode) for m in found} == {
        (0, 0, 0, "", "", 0o644)
    }


def test_the_tar_program_agrees_with_python(tmp_path):
    tool = shutil.which("tar")
    assert tool is not None, "this test needs the tar program"
    data = write(neff())
    (tmp_path / "neff.tar").write_bytes(data[1024:])
    subprocess.run([tool, "xf", "neff.tar"], cwd=tmp_path, check=True)
    for entry in tar_of(data).getmembers():
        assert (tmp_path / entry.name).read_bytes() == member(data, entry.name)


@pytest.mark.parametrize(("isa", "page"), [("x86-64-v3", 4096), ("aarch64", 65536)])
def test_the_image_is_page_aligned_in_the_file(isa, page):
    code = image()
    if isa == "aarch64":
        code = dataclasses.replace(
            code, code=bytes(2 * page), text_end=page, got=(), relocations=(),
            got_range=(page, 2 * page),
        )  # fmt: skip
    data = write(dataclasses.replace(neff(), target=make(isa), image=code))
    assert (tar_of(data).getmember("sg00/host.bin").offset_data + 1024) % page == 0


def test_def_json_uses_documented_fields_only():
    definition = json.loads(member(write(neff()), "sg00/def.json"))
    assert definition == {
        "dma_queue": {},
        "var": {
            "x": {"type": "input", "var_id": 0, "size": 24},
            "empty": {"type": "input", "var_id": 1, "size": 0},
            "state": {"type": "input", "var_id": 2, "size": 16},
            "y": {"type": "output", "var_id": 3, "size": 10},
            "z": {"type": "output", "var_id": 4, "size": 1},
            "x'": {"type": "output", "var_id": 5, "size": 24},
            "w": {"type": "file", "var_id": 6, "size": 16, "file_name": "constant0.npy"},
            "bits": {"type": "file", "var_id": 7, "size": 6, "file_name": "constant1.npy"},
            "scratch": {"type": "tmp-buf", "var_id": 8, "size": 192, "alignment": 64},
        },
    }


def test_it_says_that_no_device_can_run_it():
    data = write(neff())
    info = json.loads(member(data, "info.json"))
    assert info["executable_on_device"] is False
    assert info["producer"] == "neuron-compile"
    assert json.loads(member(data, "hlo_stats.json")) == {"MAC_count": 42}
    assert json.loads(member(data, "neff.json"))["provenance"] == neff().provenance
    assert json.loads(member(data, "metrics.json"))["launches"] == 3


def test_constants_are_aligned_numpy_files():
    data = write(neff())
    first, second = (np.load(io.BytesIO(member(data, f"sg00/constant{i}.npy"))) for i in (0, 1))
    assert first.dtype == np.float64
    assert first.tobytes() == bytes(range(16))
    assert second.dtype == np.uint16  # the bits of bfloat16
    assert second.shape == (3, 1)
    offset = tar_of(data).getmember("sg00/constant0.npy").offset_data + 1024
    assert (offset + len(npy_header(neff().plan.constants[0]))) % 64 == 0


@pytest.mark.parametrize("shape", [(), (7,), (0,), (2, 3, 4)])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "float16", "complex64", "complex128"])
def test_numpy_reads_every_kind_of_constant(dtype, shape):
    spec = tensor("c", dtype, shape)
    loaded = np.load(io.BytesIO(npy_header(spec) + bytes(spec.nbytes)))
    assert (loaded.dtype, loaded.shape) == (np.dtype(dtype), shape)


def test_equal_records_give_equal_bytes_and_unequal_ones_do_not():
    data = write(neff())
    assert write(neff()) == data
    other = write(dataclasses.replace(neff(), macs=43))
    assert other != data
    assert other[204:220] != data[204:220]


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("neff", {"constant_data": (b"", b"")}),
        ("neff", {"macs": -1}),
        ("neff", {"name": ""}),
        ("neff", {"name": "n" * 256}),
        ("neff", {"name": "\ud800"}),
        ("neff", {"provenance": {"a": 1}}),
        ("neff", {"provenance": {"a": "\ud800"}}),
        ("neff", {"provenance": {"\ud800": "a"}}),
        ("plan", {"outputs": (tensor("x", "int8", ()),)}),
        ("plan", {"scratch_bytes": -64}),
        ("plan", {"inputs": (tensor("x", "float32", (2,)),)}),
        ("plan", {"constants": (tensor("w", "float64", (2,), (2,)),)}),
        ("plan", {"kernels": (Kernel("", "loop", 1, ()),)}),
        ("plan", {"kernels": (Kernel("k", "loop", 1, ("\ud800",)),)}),
        ("image", {"text_end": PAGE + 1}),
        ("image", {"exports": {}}),
        ("image", {"exports": {"run": PAGE}}),
        ("image", {"got": ((0, "memcpy"),)}),
        ("image", {"relocations": ((2 * PAGE + 8, 3 * PAGE),)}),
    ],
)
def test_a_record_that_contradicts_itself_is_not_written(part, changes):
    whole = neff()
    if part == "neff":
        broken = dataclasses.replace(whole, **changes)
    else:
        inner = dataclasses.replace(getattr(whole, part), **changes)
        broken = dataclasses.replace(whole, **{part: inner})
    with pytest.raises(NeffFormatError):
        write(broken)
