"""`neff/target.py`: detection from CPU flags, names that round-trip, errors that help."""

import pytest

from neuron_compile.errors import OptionError
from neuron_compile.neff import target as target_module
from neuron_compile.neff.target import detect, make, parse, read_flags, read_vendor

V3 = frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"])
V4 = V3 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])


@pytest.fixture
def host(monkeypatch):
    def pretend(machine, flags, vendor="AuthenticAMD"):
        monkeypatch.setattr(target_module, "_host", lambda: (machine, frozenset(flags)))
        monkeypatch.setattr(target_module, "_vendor", lambda: vendor)

    return pretend


@pytest.mark.parametrize(
    ("machine", "flags", "name"),
    [
        ("x86_64", V3, "x86-64-v3"),
        ("x86_64", V4, "x86-64-v4"),
        ("x86_64", V4 | {"avx512_bf16", "amx_tile"}, "x86-64-v4+amx_tile+avx512_bf16"),
        ("x86_64", V4 - {"avx512vl"} | {"avx512_bf16"}, "x86-64-v3"),
        ("aarch64", {"asimd", "bf16", "sha3"}, "aarch64+bf16"),
    ],
)
def test_native_is_the_best_level_the_flags_allow(host, machine, flags, name):
    host(machine, flags)
    found = detect()
    assert found.name == name
    assert parse(name) == found
    assert found.supports_on_host()


def test_instructions_that_a_vendor_loses_by_are_not_used_unless_named(host):
    host("x86_64", V4 | {"avx512_bf16"}, "GenuineIntel")
    assert detect().name == "x86-64-v4"
    assert detect("x86-64-v4+avx512_bf16").supports_on_host()


def test_the_vendor_is_the_first_cores():
    assert read_vendor("processor : 0\nvendor_id\t: GenuineIntel\nflags : a\n") == "GenuineIntel"
    assert read_vendor("Features : asimd\n") == ""


def test_a_cpu_below_every_level_is_refused(host):
    host("x86_64", V3 - {"avx2"})
    with pytest.raises(target_module.NeffTargetError, match="at least AVX2"):
        detect()


def test_missing_features_are_named(host):
    host("x86_64", V3 | {"avx512f"})
    v4 = make("x86-64-v4", ["avx512_bf16"])
    assert v4.missing_on_host() == (
        "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512_bf16",
    )  # fmt: skip
    assert not v4.supports_on_host()
    assert make("x86-64-v3").supports_on_host()
    assert "aarch64 family" in make("aarch64").missing_on_host()[0]


def test_a_forced_level_carries_no_feature_of_the_host(host):
    host("x86_64", V4 | {"avx512_bf16"})
    assert detect("x86-64-v3").features == ()
    assert detect("x86-64-v4").features == ()
    assert "avx512" not in detect("x86-64-v3").llvm_attributes()


@pytest.mark.parametrize("name", ["x86-64-v33", "x86-64-v4+avx512_bf61", "", "x86-64-v3+"])
def test_unknown_names_are_option_errors(name):
    with pytest.raises(OptionError):
        detect(name)


@pytest.mark.parametrize(
    ("machine", "isa", "features", "offered"),
    [
        ("x86_64", "aarch64", "", "native, x86-64-v4, x86-64-v3"),
        ("x86_64", "aarch64", "+bf16", "native, x86-64-v4, x86-64-v3"),
        ("aarch64", "x86-64-v3", "", "native, aarch64"),
    ],
)
def test_another_family_of_processors_is_refused_by_name_not_in_the_linker(
    host, machine, isa, features, offered
):
    host(machine, {"asimd"})
    with pytest.raises(OptionError, match=f"cannot compile for target '{isa}'") as error:
        detect(isa + features, where="option 'target'")
    assert error.value.where == "option 'target'"
    assert machine in error.value.why
    assert error.value.remedy.endswith(f": {offered}")
    assert parse(isa + features).isa == isa  # a file of another machine can still be described


@pytest.mark.parametrize(
    ("machine", "offered"),
    [("x86_64", "native, x86-64-v4, x86-64-v3"), ("aarch64", "native, aarch64")],
)
def test_only_names_that_can_be_compiled_for_are_known(host, machine, offered):
    host(machine, {"asimd"})
    with pytest.raises(OptionError, match="unknown target 'z80'") as error:
        detect("z80", where="option 'target'")
    assert error.value.where == "option 'target'"
    assert error.value.why == f"known are {offered}"


def test_the_error_for_a_feature_says_who_asked(host):
    host("x86_64", V4)
    with pytest.raises(OptionError, match="unknown feature 'x'") as error:
        detect("x86-64-v4+x", where="option 'target'")
    assert error.value.where == "option 'target'"


def test_the_nearest_name_is_offered(host):
    host("x86_64", V4)
    with pytest.raises(OptionError, match="did you mean 'x86-64-v3'"):
        detect("x86_64_v3")
    with pytest.raises(OptionError, match="did you mean 'avx512_bf16'"):
        detect("x86-64-v4+avx512bf16")


def test_only_flags_of_all_cores_count():
    assert read_flags("flags\t\t: a b\nmodel : x\nflags : b c\n") == {"b"}
    assert read_flags("") == frozenset()
