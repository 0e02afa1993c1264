"""Options of torch.compile: read, checked, never written to."""

from __future__ import annotations

from types import MappingProxyType

import pytest
import torch

from neuron_compile import options
from neuron_compile.errors import OptionError
from neuron_compile.options import KNOBS, Options, key_items, resolve


def test_nothing_given_means_the_defaults() -> None:
    assert resolve(None, None) == resolve({}, "default") == Options()


def test_a_read_only_mapping_is_enough() -> None:
    given = MappingProxyType({"model_name": "bert", "target": "x86-64-v3"})
    assert resolve(given, None) == Options(model_name="bert", target="x86-64-v3")


def test_unknown_name_names_the_nearest() -> None:
    with pytest.raises(OptionError, match="did you mean 'model_name'"):
        resolve({"modelname": "x"}, None)


def test_unknown_name_far_from_all_lists_them() -> None:
    with pytest.raises(OptionError, match="known are model_name, target"):
        resolve({"zzz": 1}, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [("fallback_execution", 1), ("model_name", None), ("target", 3), ("shape_buckets", [0])],
)
def test_value_of_the_wrong_type(name: str, value: object) -> None:
    with pytest.raises(OptionError, match=f"option {name} cannot be"):
        resolve({name: value}, None)


def test_options_must_be_a_mapping() -> None:
    with pytest.raises(OptionError, match="must be a mapping"):
        resolve(["model_name"], None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [("fallback_execution", True), ("fallback_random", True), ("shape_buckets", [8, 16])],
)
def test_options_of_later_work_say_so(name: str, value: object) -> None:
    with pytest.raises(OptionError, match=f"{name}.* is not available yet") as raised:
        resolve({name: value}, None)
    assert "what to do: leave the option out" in str(raised.value)


def test_switched_off_they_are_accepted() -> None:
    assert resolve({"fallback_execution": False, "fallback_random": False}, None) == Options()


def test_other_modes_warn_and_go_on() -> None:
    with pytest.warns(UserWarning, match="mode='max-autotune' is ignored"):
        assert resolve(None, "max-autotune") == Options()


def test_every_option_is_documented() -> None:
    for name, knob in KNOBS.items():
        assert knob.name == name
        assert len(knob.meaning) > 20


def test_the_key_holds_what_changes_the_code_and_nothing_else() -> None:
    assert key_items(Options(model_name="a")) == key_items(Options(model_name="b"))
    assert key_items(Options(fallback_random=True)) != key_items(Options())
    # The resolved target is a part of the key of its own.
    assert key_items(Options(target="x86-64-v3")) == key_items(Options())


def test_users_see_the_error_from_torch_compile() -> None:
    compiled = torch.compile(lambda x: x + 1, backend="neuron", options={"modell_name": "x"})
    with pytest.raises(Exception, match="did you mean 'model_name'"):
        compiled(torch.ones(2))


def test_mode_of_torch_compile_warns_and_works() -> None:
    compiled = torch.compile(lambda x: x + 1, backend="neuron", mode="reduce-overhead")
    with pytest.warns(UserWarning, match="reduce-overhead"):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))


def test_remedy_for_fallback_is_the_option_s() -> None:
    assert "torch.compiler.disable" in options.fallback_remedy()
