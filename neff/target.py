"""Which CPU the machine code of a NEFF is for.

In: the kernel's list of CPU flags, or the name of a target a user asked for. Out: a `Target`, and
the function attributes that make LLVM emit code for exactly that target. Invariant: imports nothing
but the standard library, because the reader needs it too.
"""

from __future__ import annotations

import difflib
import functools
import pathlib
import platform
from collections.abc import Iterable
from dataclasses import dataclass

from neuron_compile.errors import NeffTargetError, OptionError

# Flags as Linux spells them in /proc/cpuinfo. The levels are those of the x86-64 psABI (section
# "micro-architecture levels"); its OSXSAVE shows as `xsave`, its LZCNT as `abm`.
_V3_FLAGS = ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave")
_V4_FLAGS = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")

# Features beyond a level that code generation may use: name in /proc/cpuinfo -> name in LLVM.
# Nothing else of the host enters a target, so that unequal machines share NEFFs where they can.
_EXTRA_FEATURES = {
    "x86-64-v4": {
        "amx_bf16": "amx-bf16",
        "amx_int8": "amx-int8",
        "amx_tile": "amx-tile",
        "avx512_bf16": "avx512bf16",
        "avx512_fp16": "avx512fp16",
        "avx512_vnni": "avx512vnni",
    },
    "x86-64-v3": {},
    "aarch64": {
        "asimddp": "dotprod",
        "asimdhp": "fullfp16",
        "bf16": "bf16",
        "i8mm": "i8mm",
    },
}

# What a vendor's processors have and lose by. Of Intel's products of bfloat16 pairs one starts
# every other cycle: 256x768x3072 ran at 75 GFLOP/s with them, at 100 by widening to float32.
_SLOW_FEATURES = {"GenuineIntel": frozenset({"avx512_bf16"})}

# A function's `target-cpu` alone changes nothing: LLVM still adds the features of the JIT's host.
# With `target-features` beside it they are left out, so the level's features are spelled out here.
_LEVEL_FEATURES = {
    "x86-64-v4": (
        "avx512f",
        "avx512bw",
        "avx512cd",
        "avx512dq",
        "avx512vl",
        "avx2",
        "bmi",
        "bmi2",
        "f16c",
        "fma",
        "lzcnt",
        "movbe",
        "popcnt",
    ),
    "x86-64-v3": ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt"),
    "aarch64": ("neon",),
}
_CPU = {"x86-64-v4": "x86-64-v4", "x86-64-v3": "x86-64-v3", "aarch64": "generic"}
_VECTOR_BYTES = {"x86-64-v4": 64, "x86-64-v3": 32, "aarch64": 16}

ISAS = tuple(_CPU)
NATIVE = "native"


@dataclass(frozen=True, slots=True)
class Target:
    """An instruction set: a base level, sorted extra features, and the vector width in bytes."""

    isa: str
    features: tuple[str, ...]
    vector_bytes: int

    @property
    def name(self) -> str:
        """`x86-64-v4+avx512_bf16`: unique, stable, fit for a folder name; `parse` reads it back."""
        return "+".join((self.isa, *self.features))

    def has(self, feature: str) -> bool:
        return feature in self.features

    def missing_on_host(self) -> tuple[str, ...]:
        """What this machine lacks to run code for the target; empty if it can."""
        machine, flags = _host()
        if machine != _machine_of(self.isa):
            return (f"a CPU of the {_machine_of(self.isa)} family (this one is {machine})",)
        return tuple(f for f in (*_required_flags(self.isa), *self.features) if f not in flags)

    def supports_on_host(self) -> bool:
        """True if this machine can run code for the target."""
        return not self.missing_on_host()

    def llvm_attributes(self) -> str:
        """Attributes for every `llvm.func` with a body, to stand inside `attributes {...}`.

        `prefer-vector-width` keeps 512-bit operations whole on Intel CPUs, which LLVM tunes for
        256 bits; `vector<16xf32>` is one zmm register for x86-64-v4 and two ymm for x86-64-v3.
        """
        extra = _EXTRA_FEATURES[self.isa]
        enabled = (*_LEVEL_FEATURES[self.isa], *(extra[f] for f in self.features))
        features = ", ".join(f'"+{f}"' for f in enabled)
        bits = 8 * self.vector_bytes
        return (
            f'target_cpu = "{_CPU[self.isa]}", '
            f"target_features = #llvm.target_features<[{features}]>, "
            f'passthrough = [["prefer-vector-width", "{bits}"]]'
        )


def make(isa: str, features: Iterable[str] = (), *, where: str = "") -> Target:
    """A target from its parts; raises OptionError for a name this version does not know.

    It may be of another family of processors than this machine. `where` is for the error.
    """
    if isa not in ISAS:
        raise _unknown(isa, ISAS, where)
    known = _EXTRA_FEATURES[isa]
    ordered = tuple(sorted(set(features)))
    for feature in ordered:
        if feature not in known:
            raise OptionError(
                f"unknown feature {feature!r} of target {isa}",
                where=where,
                why=f"known are {', '.join(known) or 'none'}",
                remedy=_nearest(feature, tuple(known)),
            )
    return Target(isa, ordered, _VECTOR_BYTES[isa])


def parse(name: str) -> Target:
    """The inverse of `Target.name`."""
    isa, *features = name.split("+")
    return make(isa, features)


def detect(requested: str = NATIVE, *, where: str = "") -> Target:
    """The target to compile for: `native` is all this machine has, else a name such as `x86-64-v3`.

    Raises OptionError for an unknown name or another family of processors, NeffTargetError for a
    CPU below every known level; `where` tells the user who asked, such as the option. A named
    target of this family need not run on this machine; the loader checks that.
    """
    if requested != NATIVE:
        return _named(requested, where)
    machine, flags = _host()
    for isa in ISAS:
        if machine == _machine_of(isa) and flags.issuperset(_required_flags(isa)):
            usable = flags - _SLOW_FEATURES.get(_vendor(), frozenset())
            return make(isa, (f for f in _EXTRA_FEATURES[isa] if f in usable))
    raise NeffTargetError(
        "this CPU is not supported",
        where=f"{machine}, flags read from /proc/cpuinfo",
        why="x86-64 needs at least AVX2, FMA, BMI2 and F16C (x86-64-v3); AArch64 needs ASIMD",
        remedy="run on a CPU from 2013 or later; in a virtual machine, pass the host's CPU through",
    )


def _named(name: str, where: str) -> Target:
    """A target that code can be made for here: the LLVM of this machine knows one family only."""
    isa, *features = name.split("+")
    machine, _ = _host()
    offered = (NATIVE, *(known for known in ISAS if _machine_of(known) == machine))
    if isa not in ISAS:
        raise _unknown(isa, offered, where)
    if isa not in offered:
        raise OptionError(
            f"cannot compile for target {isa!r} on this machine",
            where=where,
            why=f"this machine is {machine}, and its LLVM makes code for that family only",
            remedy=f"compile on a machine of the {_machine_of(isa)} family, or name a target of "
            f"this one: {', '.join(offered)}",
        )
    return make(isa, features, where=where)


def _unknown(isa: str, known: tuple[str, ...], where: str) -> OptionError:
    return OptionError(
        f"unknown target {isa!r}",
        where=where,
        why=f"known are {', '.join(known)}",
        remedy=_nearest(isa, known),
    )


def _machine_of(isa: str) -> str:
    return "aarch64" if isa == "aarch64" else "x86_64"


def _required_flags(isa: str) -> tuple[str, ...]:
    if isa == "aarch64":
        return ("asimd",)
    return _V3_FLAGS + _V4_FLAGS if isa == "x86-64-v4" else _V3_FLAGS


def _nearest(name: str, known: tuple[str, ...]) -> str:
    found = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {found[0]!r}?" if found else "leave it out for this machine"


@functools.cache
def _host() -> tuple[str, frozenset[str]]:
    return platform.machine(), read_flags(pathlib.Path("/proc/cpuinfo").read_text())


def _vendor() -> str:
    return read_vendor(pathlib.Path("/proc/cpuinfo").read_text())


def read_vendor(cpuinfo: str) -> str:
    """The first core's `vendor_id`; empty where there is none (AArch64)."""
    for key, _, value in (line.partition(":") for line in cpuinfo.splitlines()):
        if key.strip() == "vendor_id":
            return value.strip()
    return ""


def read_flags(cpuinfo: str) -> frozenset[str]:
    """CPU flags that *every* core lists (cores of one machine may differ)."""
    cores = [
        frozenset(value.split())
        for key, _, value in (line.partition(":") for line in cpuinfo.splitlines())
        if key.strip() in ("flags", "Features")
    ]
    return frozenset.intersection(*cores) if cores else frozenset()
