"""A NEFF file of ours to a `Neff` record, trusting nothing.

In: a path or bytes from anywhere. Out: a record equal to the one that was written, whose code and
data are views of the mapped file. Invariant: the header, the hash, the archive and every record are
checked before the caller sees them; bad bytes give NeffFormatError and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from neuron_compile.errors import NeffFormatError, OptionError
from neuron_compile.neff import archive, header
from neuron_compile.neff.check import (
    check_image,
    check_plan,
    check_provenance,
    check_tensor_type,
    is_name,
    is_size,
    require,
)
from neuron_compile.neff.schema import (
    BUILD_VERSION,
    FORMAT,
    HostPlan,
    Image,
    Kernel,
    Neff,
    TensorSpec,
    page_bytes,
)
from neuron_compile.neff.target import Target, make
from neuron_compile.neff.writer import (
    FIXED_MEMBERS,
    HOST_BIN,
    HOST_JSON,
    NEFF_JSON,
    PORTABLE,
    STATS,
    canonical,
    constant_member,
    implied_members,
    npy_header,
)

_CONSTANT = re.compile(r"sg00/constant(0|[1-9][0-9]{0,5})\.npy")

Source = str | os.PathLike[str] | bytes | memoryview


def read(source: Source) -> Neff:
    """Read and check a NEFF; raises NeffFormatError, or OSError if the file cannot be opened."""
    with names_the_file(source):
        return _neff(members(source))


@contextlib.contextmanager
def names_the_file(source: Source) -> Iterator[None]:
    """What is found wrong with a file says which one, and what to do about it."""
    try:
        yield
    except NeffFormatError as error:
        where = "" if isinstance(source, bytes | memoryview) else os.fspath(source)
        if not where:
            raise
        raise NeffFormatError(
            error.what,
            where=where,
            why=" ".join(part for part in (error.where, error.why) if part not in ("", where)),
            remedy=error.remedy or "check the path; if it is the right one, compile the NEFF again",
        ) from error


def check(data: bytes) -> None:
    """Raise NeffFormatError unless `data` is a sound NEFF of ours."""
    read(data)


def members(source: Source) -> dict[str, memoryview]:
    """The checked archive of one of our files: views by member name."""
    raw = content(source)
    found = header.parse(raw)
    if found.build_version != BUILD_VERSION:
        _refuse_foreign(found)
    data = raw[header.HEADER_BYTES :]
    require(
        found.data_size == len(data),
        f"its header counts {found.data_size} bytes of data",
        len(data),
    )
    expected = header.pack(found.name, data)
    if expected != raw[: header.HEADER_BYTES]:
        if header.parse(expected).hash != found.hash:
            raise NeffFormatError("the NEFF is damaged", why="its data do not match their hash")
        raise NeffFormatError("the NEFF is damaged", why="its header is not the one we write")
    found_members = archive.unpack(data)
    for name in found_members:
        known = name in FIXED_MEMBERS or _CONSTANT.fullmatch(name) is not None
        require(known, "a member has a name that no NEFF of ours contains", name)
    description = _json(found_members, NEFF_JSON)
    require(description.get("name") == found.name, "header and neff.json disagree on its name")
    return found_members


def content(source: Source) -> memoryview:
    """All bytes of a source, in page-aligned memory, so that its code can be run in place.

    A file is mapped privately: who shortens it in place meanwhile crashes its readers, as with any
    mapped library; replacing it by a rename is safe. Bytes are copied.
    """
    if isinstance(source, bytes | memoryview):
        if len(source) == 0:
            raise NeffFormatError("not a NEFF: there are no bytes")
        copy = mmap.mmap(-1, len(source), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        copy[:] = source
        return memoryview(copy).toreadonly()
    with open(source, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:  # which cannot be mapped
            raise NeffFormatError("not a NEFF: the file is empty", where=os.fspath(source))
        flags = mmap.MAP_PRIVATE | mmap.MAP_POPULATE
        return memoryview(mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ))


def _refuse_foreign(found: header.Header) -> NoReturn:
    if found.is_ours:
        raise NeffFormatError(
            f"the NEFF has another format ({found.build_version!r}) than this version reads",
            why=f"this version reads {BUILD_VERSION!r}",
            remedy="build it again with this version",
        )
    raise NeffFormatError(
        "the NEFF was not written by neuron-compile",
        why=f"its build version is {found.build_version!r}; its code is for another machine",
        remedy="`neuron-compile info` shows the header of any NEFF",
    )


def _neff(found: Mapping[str, memoryview]) -> Neff:
    description = _json(found, NEFF_JSON)
    host = _json(found, HOST_JSON)
    require(description.get("format") == host.get("format") == FORMAT, "its format number")
    _exactly(description, {"format", "name", "nodes", "provenance"}, NEFF_JSON)
    target = _target(host.get("target"))
    plan = _plan(host)
    image = _image(host, found.get(HOST_BIN, memoryview(b"")))
    check_plan(plan)
    check_image(image, page_bytes(target))
    constants = tuple(_constant(found, i, spec) for i, spec in enumerate(plan.constants))
    names = FIXED_MEMBERS.union(map(constant_member, range(len(constants))))
    require(found.keys() == names, "its list of members", sorted(found.keys() ^ names))
    neff = Neff(
        name=description["name"],
        target=target,
        plan=plan,
        image=image,
        constant_data=constants,
        provenance=_provenance(description["provenance"]),
        portable=found[PORTABLE],
        macs=_macs(_json(found, STATS)),
    )
    for name, expected in implied_members(neff).items():
        require(found[name] == expected, f"{name} contradicts the rest")
    return neff


def _json(found: Mapping[str, memoryview], name: str) -> dict[str, Any]:
    """A member's JSON object, which must be in the one form that `canonical` writes."""
    require(name in found, f"{name} is missing")
    raw = bytes(found[name])
    try:
        value = json.loads(raw)
        same = canonical(value) == raw
    except (ValueError, RecursionError) as error:
        why = f"{name} is not JSON: {error}"
        raise NeffFormatError("the NEFF is not valid", why=why) from error
    require(same and type(value) is dict, f"{name} is not in canonical form")
    return dict(value)


def _exactly(value: Any, keys: set[str], what: str) -> dict[str, Any]:
    require(type(value) is dict and value.keys() == keys, f"the fields of {what}", value)
    return dict(value)


def _tuple(value: Any, what: str, each: Callable[[Any], Any] | None = None) -> tuple[Any, ...]:
    require(type(value) is list, f"{what} is not a list", value)
    return tuple(value) if each is None else tuple(map(each, value))


_KERNEL = {"kind", "launches", "locations", "name"}
_HOST = {
    "checks", "constants", "exports", "format", "got", "got_range", "in_place", "inputs",
    "kernels", "outputs", "relocations", "scratch_bytes", "target", "text_end", "types",
    "uses_random",
}  # fmt: skip


def _plan(host: dict[str, Any]) -> HostPlan:
    _exactly(host, _HOST, HOST_JSON)
    types = _tuple(host["types"], "types", _type)

    def tensors(what: str) -> tuple[TensorSpec, ...]:
        rows = _tuple(host[what], what, _pair)
        require(all(is_size(row, len(types)) for _, row in rows), f"the types of {what}", rows)
        return tuple(_named(name, types[row]) for name, row in rows)

    return HostPlan(
        inputs=tensors("inputs"),
        outputs=tensors("outputs"),
        constants=tensors("constants"),
        scratch_bytes=host["scratch_bytes"],
        uses_random=host["uses_random"],
        kernels=_tuple(host["kernels"], "kernels", _kernel),
        in_place=_tuple(host["in_place"], "in_place", _pair),
        checks=_tuple(host["checks"], "checks"),
    )


def _type(value: Any) -> TensorSpec:
    """A row of the table of types, as a tensor without a name."""
    require(type(value) is list and len(value) == 4, "a tensor's type", value)
    dtype, shape, strides, nbytes = value
    kind = TensorSpec("", dtype, _tuple(shape, "a shape"), _tuple(strides, "strides"), nbytes)
    check_tensor_type(kind)
    return kind


def _named(name: Any, kind: TensorSpec) -> TensorSpec:
    return TensorSpec(name, kind.dtype, kind.shape, kind.strides, kind.nbytes)


def _kernel(value: Any) -> Kernel:
    _exactly(value, _KERNEL, "a kernel")
    locations = _tuple(value["locations"], "locations of a kernel")
    return Kernel(value["name"], value["kind"], value["launches"], locations)


def _image(host: dict[str, Any], code: memoryview) -> Image:
    require(type(host["exports"]) is dict, "the exports are not an object")
    return Image(
        code=code,
        text_end=host["text_end"],
        got=_tuple(host["got"], "got", _pair),
        relocations=_tuple(host["relocations"], "relocations", _pair),
        got_range=_pair(host["got_range"]),
        exports=host["exports"],
    )


def _pair(value: Any) -> tuple[Any, Any]:
    require(type(value) is list and len(value) == 2, "a pair", value)
    return value[0], value[1]


def _target(value: Any) -> Target:
    parts = _exactly(value, {"features", "isa"}, "the target")
    features = _tuple(parts["features"], "the features of the target")
    require(is_name(parts["isa"]) and all(map(is_name, features)), "the target", value)
    try:
        target = make(parts["isa"], features)
    except OptionError as error:
        raise NeffFormatError("the NEFF names a target this version does not know") from error
    require(target.features == features, "the order of the target's features", features)
    return target


def _constant(found: Mapping[str, memoryview], number: int, spec: TensorSpec) -> memoryview:
    name = constant_member(number)
    start = npy_header(spec)
    raw = found.get(name, memoryview(b""))
    require(
        len(raw) == len(start) + spec.nbytes and raw[: len(start)] == start,
        f"{name} is missing or does not hold {spec.name}",
    )
    return raw[len(start) :]


def _provenance(value: Any) -> Mapping[str, str]:
    check_provenance(value)
    return dict(value)


def _macs(value: dict[str, Any]) -> int:
    count = _exactly(value, {"MAC_count"}, STATS)["MAC_count"]
    require(is_size(count), "the count of multiply-accumulates", count)
    return int(count)
