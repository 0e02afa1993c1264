"""`neff/archive.py`: one content, one tar; alignment by records that tar programs skip."""

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_compile.errors import NeffFormatError
from neuron_compile.neff.archive import pack, unpack

names = st.text("abc/.-0", max_size=30).map(lambda name: name + "x")


@given(st.dictionaries(names, st.binary(max_size=1500), max_size=6))
def test_round_trip_and_agreement_with_tarfile(members):
    tar = pack(members, {}, 0)
    assert unpack(memoryview(tar)) == dict(sorted(members.items()))
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        found = {m.name: opened.extractfile(m).read() for m in opened.getmembers()}
    assert found == members


@given(
    first=st.integers(0, 9000), start=st.integers(0, 20).map(lambda blocks: 512 * blocks),
    align=st.sampled_from([4096, 65536]),
)  # fmt: skip
def test_alignment_in_the_file(first, start, align):
    members = {"a": bytes(first), "b": b"code", "c": b"rest"}
    tar = pack(members, {"b": align}, start)
    assert unpack(memoryview(tar)) == members
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        assert opened.getnames() == ["a", "b", "c"]
        assert (start + opened.getmember("b").offset_data) % align == 0


@pytest.mark.parametrize("name", ["n" * 101, "\u00e9" * 51])
def test_names_that_do_not_fit(name):
    with pytest.raises(NeffFormatError, match="does not fit"):
        pack({name: b""}, {}, 0)


@pytest.mark.parametrize("text", [b"24 comment=hidden text!\n", b"13 comment=x\n", b"-" * 512])
def test_comment_records_hold_nothing(text):
    tar = bytearray(pack({"a": b""}, {"a": 4096}, 0))
    tar[512 : 512 + len(text)] = text
    with pytest.raises(NeffFormatError, match="comment records"):
        unpack(memoryview(tar))
