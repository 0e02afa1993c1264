"""`neff/build.py`: kernels of one program in several modules, on any number of threads."""

from __future__ import annotations

import os

import numpy as np
import pytest
from torch_mlir import ir

from neuron_compile.neff import build as builder
from neuron_compile.neff.target import make
from tests import oracle
from tests.neff.codegen import native

PRODUCT = """
func.func private @product{i}(%a: tensor<{m}x{k}xf32>, %b: tensor<{k}x{n}xf32>)
    -> tensor<{m}x{n}xf32>
    attributes {{neuron.kind = "contract"}} {{
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %0 : tensor<{m}x{n}xf32>
}}"""
# Two products whose kernels fill modules of their own, and a short kernel called before and after.
TEXT = f"""
{PRODUCT.format(i=0, m=150, k=170, n=190)}
{PRODUCT.format(i=1, m=150, k=190, n=40)}
func.func private @square(%a: tensor<150x40xf32>) -> tensor<150x40xf32>
    attributes {{neuron.kind = "loop"}} {{
  %0 = stablehlo.multiply %a, %a : tensor<150x40xf32>
  return %0 : tensor<150x40xf32>
}}
func.func @main(%a: tensor<150x170xf32>, %b: tensor<170x190xf32>, %c: tensor<190x40xf32>)
    -> (tensor<150x40xf32>, tensor<150x40xf32>) {{
  %0 = func.call @product0(%a, %b)
    : (tensor<150x170xf32>, tensor<170x190xf32>) -> tensor<150x190xf32>
  %1 = func.call @product1(%0, %c)
    : (tensor<150x190xf32>, tensor<190x40xf32>) -> tensor<150x40xf32>
  %2 = func.call @square(%1) : (tensor<150x40xf32>) -> tensor<150x40xf32>
  %3 = func.call @square(%2) : (tensor<150x40xf32>) -> tensor<150x40xf32>
  return %2, %3 : tensor<150x40xf32>, tensor<150x40xf32>
}}"""


def built(text: str) -> bytes:
    module = oracle.parse(text)
    with module.context, ir.Location.unknown():
        return builder.build(
            module, target=make("x86-64-v4"), name="test", provenance={}, portable=b"none"
        )


@pytest.fixture
def modules(monkeypatch) -> list[str]:
    """The text of every module that goes to the compiler."""
    seen: list[str] = []

    class Watched(builder.ObjectCompiler):
        def add(self, text, exports):
            seen.append(text)
            super().add(text, exports)

    monkeypatch.setattr(builder, "ObjectCompiler", Watched)
    return seen


def test_bytes_do_not_depend_on_the_number_of_threads(modules, monkeypatch):
    made = []
    for cores in (1, 2, 7):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, n=cores: set(range(n)))
        made.append(built(TEXT))
    assert made == [made[0]] * 3
    assert modules == modules[:3] * 3, "two products, then what is short with the entry"


def test_kernels_of_several_modules_call_each_other(modules):
    a, b, c = (
        np.random.default_rng(0).standard_normal(shape, np.float32) / 10
        for shape in ((150, 170), (170, 190), (190, 40))
    )
    once, twice = native.run(TEXT, [a, b, c])
    assert len(modules) == 3
    expected = (a.astype(np.float64) @ b @ c) ** 2
    np.testing.assert_allclose(once, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(twice, expected**2, rtol=1e-4, atol=1e-5)


def test_a_small_program_is_one_module(modules):
    native.check(
        "(%x: tensor<8xf32>) -> tensor<8xf32> {\n"
        "  %0 = stablehlo.add %x, %x : tensor<8xf32>\n  return %0 : tensor<8xf32>\n}"
    )
    assert len(modules) == 1
