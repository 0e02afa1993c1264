"""`runtime/image.py`: pages are executable or writable, never both, and read-only once loaded."""

import dataclasses
import re

import pytest

from neuron_compile.errors import ExecutionError
from neuron_compile.neff.reader import read
from neuron_compile.neff.writer import write
from neuron_compile.runtime import image as image_module
from neuron_compile.runtime.image import LoadedImage
from tests.runtime.programs import scale


def access(address: int) -> str:
    """`r-xp` and the like of the mapping that holds an address."""
    with open("/proc/self/maps") as file:
        for line in file:
            low, high, flags = re.match(r"(\w+)-(\w+) (\S+)", line).groups()
            if int(low, 16) <= address < int(high, 16):
                return flags
    raise AssertionError(f"{address:#x} is not mapped")


@pytest.fixture(params=["file", "bytes", "record"])
def image(request, tmp_path):
    neff = scale()
    if request.param == "record":
        return neff.image
    path = tmp_path / "scale.neff"
    path.write_bytes(write(neff))
    return read(path if request.param == "file" else path.read_bytes()).image


def test_protection_of_every_part(image):
    loaded = LoadedImage(image)
    start, end = image.got_range
    assert access(loaded.address) == "r-xp"
    assert access(loaded.address + image.text_end - 1) == "r-xp"
    for offset in (image.text_end, start, end - 1):
        assert access(loaded.address + offset) == "r--p"
    assert loaded.entry("run") == loaded.address + image.exports["run"]


def test_the_file_is_run_in_place(tmp_path):
    path = tmp_path / "scale.neff"
    path.write_bytes(write(scale()))
    loaded = LoadedImage(read(path).image)
    with open("/proc/self/maps") as file:
        mapped = [line for line in file if line.rstrip().endswith("scale.neff")]
    assert any(
        int(line.split("-")[0], 16) <= loaded.address < int(line.split("-")[1].split()[0], 16)
        for line in mapped
    )
    assert path.read_bytes() == write(scale())  # what the loader wrote stayed private


def test_a_file_system_without_execution_means_a_copy(tmp_path, monkeypatch):
    path = tmp_path / "scale.neff"
    path.write_bytes(write(scale()))
    image = read(path).image
    real, refused = image_module.protect, []

    def first_refused(address, size, flags):
        if not refused:
            refused.append(address)
            raise ExecutionError("noexec")
        real(address, size, flags)

    monkeypatch.setattr(image_module, "protect", first_refused)
    loaded = LoadedImage(image)
    assert refused
    assert loaded.address != refused[0]
    assert access(loaded.address) == "r-xp"


def test_an_unknown_symbol_is_refused_by_name():
    image = scale().image
    hostile = dataclasses.replace(image, got=((image.got_range[0], "system"),))
    with pytest.raises(ExecutionError, match="'system'"):
        LoadedImage(hostile)
