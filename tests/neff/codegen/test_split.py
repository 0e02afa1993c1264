"""Groups that hold operations which cannot be pulled, anywhere: cut through scratch memory."""

# Lines of MLIR are not wrapped.
# ruff: noqa: E501

from __future__ import annotations

import numpy as np
import pytest

from neuron_compile.neff.codegen.dispatch import generate
from neuron_compile.neff.codegen.program import read_group
from neuron_compile.neff.target import detect
from tests import oracle
from tests.neff.codegen.native import check, outlined, run

SUM = "applies stablehlo.add across dimensions"
ADD_ROWS = """<{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %m = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %m : tensor<f32>
  })"""

SCATTER_IN_THE_MIDDLE = f"""(%x: tensor<9x40xf32>, %i: tensor<30xi64>, %u: tensor<30x40xf32>) -> (tensor<9x40xbf16>, tensor<9xf32>) {{
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %e = stablehlo.exponential %u : tensor<30x40xf32>
  %s = stablehlo.reduce(%e init: %z) {SUM} = [1] : (tensor<30x40xf32>, tensor<f32>) -> tensor<30xf32>
  %sb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<30xf32>) -> tensor<30x40xf32>
  %p = stablehlo.divide %e, %sb : tensor<30x40xf32>
  %t = stablehlo.tanh %x : tensor<9x40xf32>
  %r = "stablehlo.scatter"(%t, %i, %p) {ADD_ROWS} : (tensor<9x40xf32>, tensor<30xi64>, tensor<30x40xf32>) -> tensor<9x40xf32>
  %c = stablehlo.convert %r : (tensor<9x40xf32>) -> tensor<9x40xbf16>
  %q = stablehlo.multiply %r, %x : tensor<9x40xf32>
  %w = stablehlo.reduce(%q init: %z) {SUM} = [1] : (tensor<9x40xf32>, tensor<f32>) -> tensor<9xf32>
  return %c, %w : tensor<9x40xbf16>, tensor<9xf32>
}}
"""

TWO_SCATTERS = f"""(%x: tensor<9x40xf32>, %i: tensor<30xi64>, %u: tensor<30x40xf32>) -> (tensor<360xf32>, tensor<9x40xf32>) {{
  %r = "stablehlo.scatter"(%x, %i, %u) {ADD_ROWS} : (tensor<9x40xf32>, tensor<30xi64>, tensor<30x40xf32>) -> tensor<9x40xf32>
  %g = "stablehlo.gather"(%r, %i) <{{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 40>}}> : (tensor<9x40xf32>, tensor<30xi64>) -> tensor<30x40xf32>
  %h = stablehlo.add %g, %u : tensor<30x40xf32>
  %s = "stablehlo.scatter"(%r, %i, %h) {ADD_ROWS} : (tensor<9x40xf32>, tensor<30xi64>, tensor<30x40xf32>) -> tensor<9x40xf32>
  %f = stablehlo.reshape %s : (tensor<9x40xf32>) -> tensor<360xf32>
  return %f, %r : tensor<360xf32>, tensor<9x40xf32>
}}
"""

PRODUCTS_AND_A_SORT = """(%x: tensor<12x20xf32>, %w: tensor<20x24xf32>, %v: tensor<24x16xf32>) -> (tensor<12x16xf32>, tensor<12x24xf32>) {
  %d = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<12x20xf32>, tensor<20x24xf32>) -> tensor<12x24xf32>
  %s = "stablehlo.sort"(%d) <{dimension = 1 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %p = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }) : (tensor<12x24xf32>) -> tensor<12x24xf32>
  %t = stablehlo.tanh %s : tensor<12x24xf32>
  %o = stablehlo.dot_general %t, %v, contracting_dims = [1] x [0] : (tensor<12x24xf32>, tensor<24x16xf32>) -> tensor<12x16xf32>
  %q = stablehlo.add %o, %o : tensor<12x16xf32>
  return %q, %d : tensor<12x16xf32>, tensor<12x24xf32>
}
"""

RANDOM_ROWS = """(%s: tensor<2xui64>) -> (tensor<20x16xi1>) {
  %n, %r = stablehlo.rng_bit_generator %s, algorithm = PHILOX : (tensor<2xui64>) -> (tensor<2xui64>, tensor<20x16xui32>)
  %t = "stablehlo.sort"(%r) <{dimension = 1 : i64}> ({
  ^bb0(%a: tensor<ui32>, %b: tensor<ui32>):
    %p = stablehlo.compare LT, %a, %b : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }) : (tensor<20x16xui32>) -> tensor<20x16xui32>
  %l = stablehlo.slice %t [0:20, 0:15] : (tensor<20x16xui32>) -> tensor<20x15xui32>
  %h = stablehlo.slice %t [0:20, 1:16] : (tensor<20x16xui32>) -> tensor<20x15xui32>
  %c = stablehlo.compare LE, %l, %h : (tensor<20x15xui32>, tensor<20x15xui32>) -> tensor<20x15xi1>
  %f = stablehlo.constant dense<true> : tensor<i1>
  %o = stablehlo.pad %c, %f, low = [0, 0], high = [0, 1], interior = [0, 0] : (tensor<20x15xi1>, tensor<i1>) -> tensor<20x16xi1>
  return %o : tensor<20x16xi1>
}
"""


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("text", [SCATTER_IN_THE_MIDDLE, TWO_SCATTERS, PRODUCTS_AND_A_SORT])
def test_cut_groups_compute_the_same(text: str, target: str) -> None:
    check(text, "loop", target=detect(target), tolerance=1e-4)


def test_random_bits_feed_a_sort() -> None:

    (got,) = run(outlined(RANDOM_ROWS, "random"), [np.array([1, 2], np.uint64)])
    assert got.all()


def test_the_first_kernel_asks_for_all_scratch_memory() -> None:
    module = oracle.parse(outlined(PRODUCTS_AND_A_SORT))
    with module.context:
        kernels = generate(read_group(module.body.operations[0]), detect())
    assert kernels[0].scratch
    assert not any(k.scratch for k in kernels[1:])
    assert len({k.name for k in kernels}) == len(kernels)


def test_a_reshaped_result_is_not_copied() -> None:
    """Two scatters: operand copies and updates, and nothing for the reshape."""
    module = oracle.parse(outlined(TWO_SCATTERS))
    with module.context:
        kernels = generate(read_group(module.body.operations[0]), detect())
    assert len(kernels) == 4
