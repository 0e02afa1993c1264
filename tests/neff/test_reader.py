"""`neff/reader.py`: what was written comes back; whatever else comes is a NeffFormatError."""

import gzip
import io
import json
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuron_compile.errors import NeffFormatError
from neuron_compile.neff import archive, header
from neuron_compile.neff.reader import check, members, read
from neuron_compile.neff.schema import HostPlan, Kernel, Neff, tensor
from neuron_compile.neff.target import make
from neuron_compile.neff.writer import canonical, write
from tests.neff.samples import PAGE, image, neff, resealed, sealed

DATA = write(neff())
HOST = json.loads(bytes(members(DATA)["sg00/host.json"]))
HEADER_FIELDS = {
    "pkg_version": 0, "header_size": 8, "data_size": 16, "major": 24, "minor": 32,
    "build_version": 40, "end of build_version": 167, "num_tpb": 168, "hash": 172,
    "end of hash": 203, "uuid": 204, "name": 220, "end of name": 475, "requested": 476,
    "tpb_per_node": 480, "second node": 481, "feature_bits": 544, "lnc_size": 552, "pad": 556,
    "end of pad": 1023,
}  # fmt: skip


def refused(data: bytes) -> str:
    with pytest.raises(NeffFormatError) as caught:
        read(data)
    return str(caught.value)


def with_host(changes: dict) -> bytes:
    return resealed(DATA, {"sg00/host.json": canonical({**HOST, **changes})})


@pytest.mark.parametrize("text", ["\ud800", "a\udcff", 1, None, ["a"]])
@pytest.mark.parametrize("name", ["key_signature", "key.graph", "versions"])
def test_provenance_that_is_no_text_in_utf_8_is_refused(name, text):
    """JSON's escapes spell lone surrogates, which can neither be hashed nor printed."""
    description = json.loads(bytes(members(DATA)["neff.json"]))
    description["provenance"][name] = text
    assert "provenance" in refused(resealed(DATA, {"neff.json": canonical(description)}))


def test_what_was_written_comes_back(tmp_path):
    path = tmp_path / "model.neff"
    path.write_bytes(DATA)
    assert read(DATA) == neff()
    assert read(memoryview(DATA)) == neff()
    assert read(path) == neff()
    assert read(str(path)) == neff()
    check(DATA)


dtypes = st.sampled_from(["bool", "int64", "float32", "bfloat16", "complex128"])
shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@settings(max_examples=60, deadline=None)
@given(
    kinds=st.lists(st.tuples(dtypes, shapes), max_size=6),
    constants=st.lists(st.tuples(dtypes, shapes), max_size=3),
    name=st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=60),
    provenance=st.dictionaries(st.sampled_from("abc"), st.text(max_size=20)),
    scratch=st.integers(0, 1 << 40),
)
def test_any_record_makes_a_round_trip(kinds, constants, name, provenance, scratch):
    stored = tuple(tensor(f"c{i}", *kind) for i, kind in enumerate(constants))
    plan = HostPlan(
        inputs=tuple(tensor(f"i{i}", *kind) for i, kind in enumerate(kinds)),
        outputs=tuple(tensor(f"o{i}", *kind) for i, kind in enumerate(reversed(kinds))),
        constants=stored,
        scratch_bytes=scratch,
        uses_random=False,
        kernels=(Kernel("k", "loop", len(kinds), (name,)),),
    )
    whole = Neff(
        name, make("x86-64-v3"), plan, image(), tuple(bytes(c.nbytes) for c in stored),
        provenance, b"", 0,
    )  # fmt: skip
    assert read(write(whole)) == whole


def test_truncation_at_every_boundary():
    ends = {*range(0, len(DATA), 512), 1, 1023, 1025, len(DATA) - 1}
    for end in sorted(ends):
        refused(DATA[:end])
    refused(DATA + b"\0")
    refused(DATA + bytes(512))


@pytest.mark.parametrize("field", HEADER_FIELDS)
def test_every_bit_of_the_header_matters(field):
    at = HEADER_FIELDS[field]
    for bit in range(8):
        damaged = bytearray(DATA)
        damaged[at] ^= 1 << bit
        refused(bytes(damaged))


@settings(max_examples=300, deadline=None)
@given(at=st.integers(0, len(DATA) - 1), mask=st.integers(1, 255))
def test_any_changed_byte_is_found(at, mask):
    damaged = bytearray(DATA)
    damaged[at] ^= mask
    refused(bytes(damaged))


@settings(max_examples=300, deadline=None)
@given(at=st.integers(0, len(DATA) - 1025), new=st.binary(min_size=1, max_size=600))
def test_a_changed_payload_with_a_right_hash_raises_nothing_else(at, new):
    tar = bytearray(DATA[1024:])
    tar[at : at + len(new)] = new
    try:
        read(sealed(bytes(tar)))
    except NeffFormatError:
        pass
    else:  # a change of data only: code, constants, or the portable module
        assert bytes(tar) == DATA[1024:] or len(tar) == len(DATA) - 1024


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=3000))
def test_noise_is_refused(noise):
    refused(noise)
    refused(sealed(noise))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


def places(value, path=()):
    yield path
    if isinstance(value, dict | list):
        keys = value if isinstance(value, dict) else range(len(value))
        for key in keys:
            yield from places(value[key], (*path, key))


@settings(max_examples=600, deadline=None)
@given(place=st.sampled_from(sorted(places(HOST), key=str)), value=json_values)
def test_a_wrong_value_anywhere_in_host_json_raises_nothing_else(place, value):
    changed = json.loads(json.dumps(HOST))
    if not place:
        changed = value
    else:
        inner = changed
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value
    try:
        found = read(resealed(DATA, {"sg00/host.json": canonical(changed)}))
    except NeffFormatError:
        return
    size = len(found.image.code)
    start, end = found.image.got_range
    assert 0 < found.image.text_end <= start <= end == size
    assert all(start <= at <= end - 8 for at, _ in (*found.image.got, *found.image.relocations))
    assert 0 <= found.image.exports["run"] < found.image.text_end
    assert all(type(n) is int for spec in found.plan.tensors for n in (*spec.shape, spec.nbytes))


GOT = 2 * PAGE
HOSTILE = {
    "slot before the slots": {"got": [[GOT - 8, "memcpy"]]},
    "slot behind the image": {"got": [[3 * PAGE, "memcpy"]]},
    "slot across the end": {"got": [[3 * PAGE - 4, "memcpy"]]},
    "negative slot": {"got": [[-8, "memcpy"]]},
    "slot taken twice": {"got": [[GOT, "memcpy"], [GOT, "memset"]]},
    "slot also relocated": {"got": [[GOT + 8, "memcpy"]]},
    "slot is true": {"got": [[True, "memcpy"]]},
    "symbol is a number": {"got": [[GOT, 5]]},
    "relocation in the code": {"relocations": [[8, 16]]},
    "relocation to outside": {"relocations": [[GOT + 8, 3 * PAGE]]},
    "relocation backwards": {"relocations": [[GOT + 8, -1]]},
    "slots in the code": {"got_range": [0, 3 * PAGE], "got": [], "relocations": []},
    "slots beyond the image": {"got_range": [GOT, 4 * PAGE]},
    "slots not at the end": {"got_range": [GOT, GOT], "got": [], "relocations": []},
    "slots off a page": {"got_range": [GOT + 8, 3 * PAGE]},
    "code into the slots": {"text_end": 3 * PAGE},
    "no code": {"text_end": 0},
    "code off a page": {"text_end": 100},
    "export in the constants": {"exports": {"run": PAGE}},
    "export before the image": {"exports": {"run": -1}},
    "export is a float": {"exports": {"run": 0.0}},
    "no run": {"exports": {"walk": 0}},
    "huge arena": {"scratch_bytes": 1 << 63},
    "arena is a float": {"scratch_bytes": 64.0},
    "huge tensor": {"types": [["float32", [1 << 40, 1 << 40], [1 << 40, 1], 1 << 62]]},
    "size of another shape": {"types": [["float32", [4], [1], 8]] * 6},
    "negative stride": {"types": [["float32", [4], [-1], 16]] * 6},
    "rank of 65": {"types": [["float32", [1] * 65, [1] * 65, 4]] * 6},
    "strides missing": {"types": [["float32", [4], [], 16]] * 6},
    "unknown dtype": {"types": [["float31", [4], [1], 16]] * 6},
    "no such type": {"inputs": [["x", 99]]},
    "two equal names": {"inputs": [["x", 0], ["x", 0]]},
    "unprintable name": {"inputs": [["\u0007", 0]]},
    "surrogate name": {"inputs": [["\ud800", 0]]},
    "surrogate location": {"kernels": [{**HOST["kernels"][0], "locations": ["\ud800"]}]},
    "no random state": {"inputs": []},
    "another format": {"format": 2},
    "output in no input's place": {"in_place": [[0, 9]]},
    "output that is not there": {"in_place": [[3, 0]]},
    "output in another type's place": {"in_place": [[0, 0]]},
    "output in one number's place": {"in_place": [0]},
    "check without a message": {"checks": [1]},
    "checks that are no list": {"checks": "no"},
    "two outputs in one place": {
        "types": [["float32", [4], [1], 16], *HOST["types"]],
        "inputs": [["a", 0], *[[n, t + 1] for n, t in HOST["inputs"]]],
        "outputs": [["b", 0], ["c", 0]],
        "constants": [[n, t + 1] for n, t in HOST["constants"]],
        "in_place": [[0, 0], [1, 0]],
    },
    "unknown target": {"target": {"isa": "z80", "features": []}},
    "unknown feature": {"target": {"isa": "x86-64-v4", "features": ["avx1024"]}},
    "a feature twice": {"target": {"isa": "x86-64-v4", "features": ["avx512_bf16"] * 2}},
    "an extra field": {"more": 1},
    "more constants than files": {"constants": [*HOST["constants"], ["v", 0]]},
    "fewer constants than files": {"constants": HOST["constants"][:1]},
    "constants of other types": {"constants": HOST["constants"][::-1]},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_plans_with_a_right_hash(case):
    assert "not valid" in refused(with_host(HOSTILE[case])) or case.startswith("unknown")


@pytest.mark.parametrize("name", sorted(members(DATA)))
def test_no_member_may_be_missing_or_empty(name):
    refused(resealed(DATA, {name: None}))
    if name != "stablehlo.mlirbc":
        refused(resealed(DATA, {name: b""}))


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../up", "sg00/../../up", "sg01/host.bin", "run.py", "sg00/constant01.npy"],
)
def test_no_other_member_may_be_there(name):
    assert "name" in refused(resealed(DATA, {name: b"x"}))


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b"[" * 900 + b"]" * 900,
        b'{"a":' * 900 + b"1" + b"}" * 900,
        b"9" * 10_000,
        b'{"format":NaN}',
        b'{"format":1e999}',
        b'{"format":1,"format":1}',
        b"\xff\xfe{}",
        b"\xef\xbb\xbf{}",
        b"[]",
        b"",
        json.dumps(HOST, sort_keys=True).encode(),
        canonical({**HOST, "got": json.loads("[" * 500 + "]" * 500)}),
    ],
    ids=lambda text: repr(text[:12]),
)
@pytest.mark.parametrize("name", ["sg00/host.json", "neff.json", "hlo_stats.json"])
def test_hostile_json(name, text):
    refused(resealed(DATA, {name: text}))


def test_names_of_header_and_description_must_agree():
    description = json.loads(bytes(members(DATA)["neff.json"]))
    assert "name" in refused(
        resealed(DATA, {"neff.json": canonical({**description, "name": "other"})})
    )


def plain_tar(*entries: tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for entry in entries:
            tar.addfile(entry, io.BytesIO(bytes(entry.size)))
    return out.getvalue()


def entry(name: str, **fields) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return info


@pytest.mark.parametrize(
    "tar",
    [
        plain_tar(entry("neff.json", type=tarfile.SYMTYPE, linkname="/etc/passwd")),
        plain_tar(entry("neff.json", type=tarfile.LNKTYPE, linkname="info.json")),
        plain_tar(entry("sg00", type=tarfile.DIRTYPE)),
        plain_tar(entry("neff.json", type=tarfile.CHRTYPE)),
        plain_tar(entry("neff.json", size=3, mode=0o755)),
        plain_tar(entry("neff.json", size=3, mtime=1)),
        plain_tar(entry("neff.json", size=3), entry("neff.json", size=3)),
        plain_tar(entry("neff.json"), entry("info.json")),
        plain_tar(),
        archive.pack({"a": b"x"}, {}, 0)[:-512],
        archive.pack({"a": b"x"}, {}, 0) + bytes(512),
        archive.pack({"a": b"x"}, {}, 0)[:-1] + b"x",
        gzip.compress(DATA[1024:], mtime=0),
    ],
    ids=range(13),
)
def test_other_tars_are_refused(tar):
    refused(sealed(tar))


@pytest.mark.parametrize("digits", [b"77777777777", b"00000000777", b"-0000000001", b"0x000000001"])
def test_sizes_that_lie(digits):
    tar = bytearray(archive.pack({"neff.json": b"{}"}, {}, 0))
    tar[124:135] = digits
    tar[148:156] = b"        "
    tar[148:156] = b"%06o\0 " % sum(tar[:512])
    refused(sealed(bytes(tar)))


def test_a_foreign_neff_is_named_as_such():
    data = bytearray(DATA)
    data[40:168] = b"2.14.227.0".ljust(128, b"\0")
    assert "2.14.227.0" in refused(bytes(data))
    data[40:168] = b"neuron-compile format 1".ljust(128, b"\0")
    assert "build it again" in refused(bytes(data))


def test_the_file_is_named_in_the_error(tmp_path):
    path = tmp_path / "damaged.neff"
    path.write_bytes(DATA[:-1])
    with pytest.raises(NeffFormatError, match=r"damaged\.neff"):
        read(path)
    path.write_bytes(b"")
    with pytest.raises(NeffFormatError, match=r"damaged\.neff"):
        read(path)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "absent.neff")
    with pytest.raises(OSError, match="directory"):
        read(tmp_path)


@pytest.mark.parametrize("content", [b"", b"root:x:0:0:root:/root:/bin/sh\n" * 50, DATA[:-1]])
def test_nobody_is_told_to_delete_a_file_of_theirs(tmp_path, content):
    path = tmp_path / "mine"
    path.write_bytes(content)
    with pytest.raises(NeffFormatError) as error:
        read(path)
    assert error.value.where == str(path)
    assert error.value.remedy.startswith("check the path")
    assert str(error.value).count(str(path)) == 1
    assert "delete" not in error.value.remedy


def test_a_large_plan_reads_back():
    plan = neff().plan
    many = HostPlan(
        inputs=tuple(tensor(f"i{i}", "float32", (768, 768 + i % 7)) for i in range(600)),
        outputs=(), constants=(), scratch_bytes=0, uses_random=False, kernels=plan.kernels,
    )  # fmt: skip
    whole = Neff("large", make("x86-64-v3"), many, image(), (), {}, b"", 0)
    assert read(write(whole)).plan == many


def test_a_header_is_1024_bytes():
    assert header.HEADER_BYTES == 1024
    refused(DATA[:1024])
