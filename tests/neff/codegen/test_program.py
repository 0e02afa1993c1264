"""What the records of a group hold of its constants."""

from __future__ import annotations

import numpy as np
import pytest
from torch_mlir import ir

from neuron_compile.lowering.context import new_context
from neuron_compile.neff.codegen.program import read_group

GROUP = """
func.func private @g() -> {kind} attributes {{neuron.kind = "loop"}} {{
  %0 = stablehlo.constant dense<{elements}> : {kind}
  return %0 : {kind}
}}"""


def constant(elements: str, kind: str) -> np.ndarray:
    with new_context():
        module = ir.Module.parse(GROUP.format(elements=elements, kind=kind))
        [result] = read_group(module.body.operations[0]).results
    assert result.op == "stablehlo.constant"
    return result.attributes["value"]


@pytest.mark.parametrize(
    ("element", "elem", "expected"),
    [
        ("0xFF800000", "f32", np.float32(-np.inf)),
        ("1.5", "bf16", np.float32(1.5)),
        ("true", "i1", np.True_),
        ("-1", "i64", np.int64(-1)),
        ("255", "ui8", np.uint8(255)),
    ],
)
def test_equal_elements_are_one_whatever_the_shape(element, elem, expected):
    """A mask over 12 heads of 65536 positions would be 200 GB."""
    found = constant(element, f"tensor<12x65536x65536x{elem}>")
    assert found.shape == ()
    assert found.dtype == expected.dtype
    assert found == expected


def test_elements_that_differ_keep_their_shape():
    found = constant("[[1, 2, 3], [4, 5, 6]]", "tensor<2x3xi32>")
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, [[1, 2, 3], [4, 5, 6]])
