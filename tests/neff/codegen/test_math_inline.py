"""No function of the math library calls another library, in any form."""

from __future__ import annotations

import pytest

from neuron_compile.neff.codegen import math_table
from neuron_compile.neff.codegen.emitter import Emitter
from neuron_compile.neff.codegen.math_expr import Expr, has_avx512, where
from neuron_compile.neff.codegen.value import Val
from neuron_compile.neff.compile_object import compile_object
from neuron_compile.neff.link import link
from neuron_compile.neff.target import make
from tests.neff.codegen.math_kernels import BINARY, DTYPES, Form, forms, kernel_text
from tests.neff.codegen.math_reference import CASES


@pytest.mark.parametrize("form", [f for elem in DTYPES for f in forms(elem)], ids=str)
def test_nothing_external_is_called(form: Form) -> None:
    names = [*CASES, *BINARY]
    text = "".join(kernel_text(name, form, f"do_{name}") for name in names)
    exports = [f"do_{name}" for name in names]
    assert link(compile_object(text, exports), exports).got == ()


@pytest.mark.parametrize("lanes", [0, 2, 3, 4, 32])
@pytest.mark.parametrize("name", ["exp", "log", "sin", "fmod"])
def test_any_number_of_lanes_compiles(name: str, lanes: int) -> None:
    for elem in DTYPES:
        form = Form(forms(elem)[0].target, elem, lanes)
        assert link(compile_object(kernel_text(name, form), ["kernel"]), ["kernel"]).got == ()


def test_avx512_instructions_need_the_target_and_a_whole_register() -> None:
    def value(lanes: int, *features: str) -> Expr:
        return Expr(Emitter(16, frozenset(features)), Val("%x", "f32", lanes, 0, 0))

    assert has_avx512(value(16, "x86-64-v4"))
    assert has_avx512(value(8, "avx512_vnni"))
    assert not has_avx512(value(16))
    assert not has_avx512(value(16, "x86-64-v3"))
    assert not has_avx512(value(0, "x86-64-v4"))
    assert has_avx512(value(32, "x86-64-v4"))  # two registers


@pytest.mark.parametrize("name", ["sin", "fmod"])
def test_slow_paths_leave_loops_that_do_not_change_them(name: str) -> None:
    e = Emitter(16)
    x = Val("%begin", "f32", 0, 0, 0)
    operands = (x, x) if name in BINARY else (x,)

    def body(_: Val, carried: tuple[Val, ...]) -> tuple[Val, ...]:
        return (e.add(carried[0], getattr(math_table, name)(e, *operands)),)

    e.loop(e.index(0), e.index(8), 1, body, (e.const("f32", 0.0),))
    before, loop = e.function("f", "").split("scf.for")
    assert "scf.if" in before or "scf.while" in before
    assert "scf.if" not in loop
    assert "scf.while" not in loop


def test_portable_text_names_no_x86_instruction() -> None:
    form = Form(make("aarch64"), "f32", 4)
    assert not any("llvm.x86" in kernel_text(name, form) for name in [*CASES, *BINARY])


def test_where_needs_a_typed_alternative() -> None:
    mask = Expr(Emitter(16), Val("%m", "i1", 0, 0, 0))
    with pytest.raises(TypeError, match="no type"):
        where(mask, 1.0, 2.0)
