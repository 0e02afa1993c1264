"""Loop kernels against the StableHLO interpreter.

Views, reductions, row groups, odd shapes, all dtypes.
"""

from __future__ import annotations

import pytest

from neuron_compile.neff.target import detect
from tests.neff.codegen.native import check

SUM = "applies stablehlo.add across dimensions"
MAX = "applies stablehlo.maximum across dimensions"


def elementwise(shape: str, elem: str, op: str) -> str:
    t = f"tensor<{shape}{elem}>"
    return f"""(%a: {t}, %b: {t}) -> ({t}) {{
  %r = stablehlo.{op} %a, %b : {t}
  return %r : {t}
}}
"""


@pytest.mark.parametrize(
    "shape", ["", "1x", "3x", "16x", "17x", "5x7x", "2x3x64x", "1000x", "0x3x"]
)
@pytest.mark.parametrize("elem", ["f32", "f64", "bf16", "f16", "i64", "i32", "i8", "ui8", "i1"])
def test_elementwise_of_every_shape_and_dtype(shape: str, elem: str) -> None:
    check(elementwise(shape, elem, "add"))


@pytest.mark.parametrize("elem", ["i64", "i32", "i16", "i8", "ui8"])
@pytest.mark.parametrize("op", ["subtract", "multiply", "maximum", "minimum", "and", "or", "xor"])
def test_integer_arithmetic_wraps(elem: str, op: str) -> None:
    check(elementwise("37x", elem, op))


@pytest.mark.parametrize("elem", ["f32", "f64"])
@pytest.mark.parametrize("op", ["subtract", "multiply", "divide", "maximum", "minimum"])
def test_float_arithmetic(elem: str, op: str) -> None:
    check(elementwise("37x", elem, op))


VIEWS = {
    "transpose": """(%a: tensor<5x7x3xf32>) -> (tensor<3x5x7xf32>) {
  %r = stablehlo.transpose %a, dims = [2, 0, 1] : (tensor<5x7x3xf32>) -> tensor<3x5x7xf32>
  return %r : tensor<3x5x7xf32>
}
""",
    "split heads": """(%a: tensor<2x6x32xf32>) -> (tensor<2x4x6x8xf32>) {
  %0 = stablehlo.reshape %a : (tensor<2x6x32xf32>) -> tensor<2x6x4x8xf32>
  %r = stablehlo.transpose %0, dims = [0, 2, 1, 3] : (tensor<2x6x4x8xf32>) -> tensor<2x4x6x8xf32>
  return %r : tensor<2x4x6x8xf32>
}
""",
    "merge heads": """(%a: tensor<2x4x6x8xf32>) -> (tensor<12x32xf32>) {
  %0 = stablehlo.transpose %a, dims = [0, 2, 1, 3] : (tensor<2x4x6x8xf32>) -> tensor<2x6x4x8xf32>
  %r = stablehlo.reshape %0 : (tensor<2x6x4x8xf32>) -> tensor<12x32xf32>
  return %r : tensor<12x32xf32>
}
""",
    "reshape across primes": """(%a: tensor<6x35xf32>) -> (tensor<14x15xf32>) {
  %0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<6x35xf32>) -> tensor<35x6xf32>
  %r = stablehlo.reshape %0 : (tensor<35x6xf32>) -> tensor<14x15xf32>
  return %r : tensor<14x15xf32>
}
""",
    "slice with steps": """(%a: tensor<9x40xf32>) -> (tensor<4x13xf32>) {
  %r = stablehlo.slice %a [1:9:2, 0:39:3] : (tensor<9x40xf32>) -> tensor<4x13xf32>
  return %r : tensor<4x13xf32>
}
""",
    "reverse": """(%a: tensor<3x33xf32>) -> (tensor<3x33xf32>) {
  %r = stablehlo.reverse %a, dims = [1] : tensor<3x33xf32>
  return %r : tensor<3x33xf32>
}
""",
    "pad all ways": """(%a: tensor<4x9xf32>, %p: tensor<f32>) -> (tensor<9x25xf32>) {
  %r = stablehlo.pad %a, %p, low = [1, -1], high = [1, 2], interior = [1, 2]
      : (tensor<4x9xf32>, tensor<f32>) -> tensor<9x26xf32>
  %s = stablehlo.slice %r [0:9:1, 0:25:1] : (tensor<9x26xf32>) -> tensor<9x25xf32>
  return %s : tensor<9x25xf32>
}
""",
    "concatenate": """(%a: tensor<3x5xf32>, %b: tensor<3x20xf32>, %c: tensor<3x1xf32>)
    -> (tensor<3x26xf32>) {
  %r = stablehlo.concatenate %a, %b, %c, dim = 1
      : (tensor<3x5xf32>, tensor<3x20xf32>, tensor<3x1xf32>) -> tensor<3x26xf32>
  return %r : tensor<3x26xf32>
}
""",
    "iota and compare": """(%a: tensor<9x9xf32>) -> (tensor<9x9xf32>) {
  %i = stablehlo.iota dim = 0 : tensor<9x9xi64>
  %j = stablehlo.iota dim = 1 : tensor<9x9xi64>
  %m = stablehlo.compare LE, %j, %i : (tensor<9x9xi64>, tensor<9x9xi64>) -> tensor<9x9xi1>
  %z = stablehlo.constant dense<0.0> : tensor<9x9xf32>
  %r = stablehlo.select %m, %a, %z : tensor<9x9xi1>, tensor<9x9xf32>
  return %r : tensor<9x9xf32>
}
""",
    "embedding": """(%w: tensor<8x40xf32>, %i: tensor<2x3xi64>) -> (tensor<2x3x40xf32>) {
  %r = "stablehlo.gather"(%w, %i)
      <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0],
      start_index_map = [0], index_vector_dim = 2>, slice_sizes = array<i64: 1, 40>}>
      : (tensor<8x40xf32>, tensor<2x3xi64>) -> tensor<2x3x40xf32>
  return %r : tensor<2x3x40xf32>
}
""",
    "gather along lanes": """(%w: tensor<8xf32>, %i: tensor<50x1xi32>) -> (tensor<50xf32>) {
  %r = "stablehlo.gather"(%w, %i)
      <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
      start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>}>
      : (tensor<8xf32>, tensor<50x1xi32>) -> tensor<50xf32>
  return %r : tensor<50xf32>
}
""",
    "dynamic slice": """(%a: tensor<9x33xf32>, %i: tensor<i64>) -> (tensor<2x33xf32>) {
  %z = stablehlo.constant dense<0> : tensor<i64>
  %r = stablehlo.dynamic_slice %a, %i, %z, sizes = [2, 33]
      : (tensor<9x33xf32>, tensor<i64>, tensor<i64>) -> tensor<2x33xf32>
  return %r : tensor<2x33xf32>
}
""",
    "dynamic update slice": """(%a: tensor<9x33xf32>, %u: tensor<2x5xf32>, %i: tensor<i32>)
    -> (tensor<9x33xf32>) {
  %r = stablehlo.dynamic_update_slice %a, %u, %i, %i
      : (tensor<9x33xf32>, tensor<2x5xf32>, tensor<i32>, tensor<i32>) -> tensor<9x33xf32>
  return %r : tensor<9x33xf32>
}
""",
    "bits as narrower elements": """(%a: tensor<3x7xi64>) -> (tensor<3x7x2xi32>) {
  %r = stablehlo.bitcast_convert %a : (tensor<3x7xi64>) -> tensor<3x7x2xi32>
  return %r : tensor<3x7x2xi32>
}
""",
    "bits as wider elements": """(%a: tensor<3x17x2xi32>) -> (tensor<3x17xi64>) {
  %r = stablehlo.bitcast_convert %a : (tensor<3x17x2xi32>) -> tensor<3x17xi64>
  return %r : tensor<3x17xi64>
}
""",
    "table constant": """(%a: tensor<2x5xf32>) -> (tensor<2x5xf32>) {
  %c = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0]> : tensor<5xf32>
  %b = stablehlo.broadcast_in_dim %c, dims = [1] : (tensor<5xf32>) -> tensor<2x5xf32>
  %r = stablehlo.add %a, %b : tensor<2x5xf32>
  return %r : tensor<2x5xf32>
}
""",
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str) -> None:
    check(VIEWS[name])


@pytest.mark.parametrize("name", VIEWS)
def test_views_for_the_lower_target(name: str) -> None:
    check(VIEWS[name], target=detect("x86-64-v3"))


@pytest.mark.parametrize(
    "shape", [(7,), (3, 100), (64, 5), (2, 3, 70), (1, 4097), (300, 300), (2, 40000)]
)
@pytest.mark.parametrize("elem", ["f32", "i32", "f64"])
def test_sum_and_maximum_over_each_dimension(shape: tuple[int, ...], elem: str) -> None:
    t = f"tensor<{'x'.join(map(str, shape))}x{elem}>"
    low = {"i32": "-2147483648", "f32": "0xFF800000", "f64": "0xFFF0000000000000"}[elem]
    zero = "0" if elem == "i32" else "0.0"
    for d in range(len(shape)):
        out = [str(n) for i, n in enumerate(shape) if i != d]
        r = f"tensor<{'x'.join([*out, elem])}>"
        check(
            f"""(%a: {t}) -> ({r}, {r}) {{
  %z = stablehlo.constant dense<{zero}> : tensor<{elem}>
  %l = stablehlo.constant dense<{low}> : tensor<{elem}>
  %s = stablehlo.reduce(%a init: %z) {SUM} = [{d}] : ({t}, tensor<{elem}>) -> {r}
  %m = stablehlo.reduce(%a init: %l) {MAX} = [{d}] : ({t}, tensor<{elem}>) -> {r}
  return %s, %m : {r}, {r}
}}
""",
            tolerance=1e-4,
        )


def softmax(rows: int, columns: int, dim: int = 1) -> str:
    t, r = f"tensor<{rows}x{columns}xf32>", f"tensor<{(rows, columns)[1 - dim]}xf32>"
    return f"""(%x: {t}) -> ({t}) {{
  %ni = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %m = stablehlo.reduce(%x init: %ni) {MAX} = [{dim}] : ({t}, tensor<f32>) -> {r}
  %mb = stablehlo.broadcast_in_dim %m, dims = [{1 - dim}] : ({r}) -> {t}
  %s = stablehlo.subtract %x, %mb : {t}
  %e = stablehlo.exponential %s : {t}
  %t = stablehlo.reduce(%e init: %z) {SUM} = [{dim}] : ({t}, tensor<f32>) -> {r}
  %tb = stablehlo.broadcast_in_dim %t, dims = [{1 - dim}] : ({r}) -> {t}
  %o = stablehlo.divide %e, %tb : {t}
  return %o : {t}
}}
"""


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("columns", [65, 97, 127, 129, 190, 300])
@pytest.mark.parametrize("elem", ["f32", "f64", "i8"])
def test_sums_of_columns_read_no_more_than_there_is(elem: str, columns: int, target: str) -> None:
    """The last columns are read under a mask; the loop of whole vectors stays in its branch."""
    t = f"tensor<130x{columns}x{elem}>"
    zero = "0" if elem == "i8" else "0.0"
    check(
        f"""(%a: {t}) -> (tensor<{columns}x{elem}>) {{
  %z = stablehlo.constant dense<{zero}> : tensor<{elem}>
  %r = stablehlo.reduce(%a init: %z) {SUM} = [0]
      : ({t}, tensor<{elem}>) -> tensor<{columns}x{elem}>
  return %r : tensor<{columns}x{elem}>
}}
""",
        target=detect(target),
        tolerance=1e-4,
    )


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (64, 100), (5, 1024), (130, 33)])
def test_softmax_over_either_dimension(shape: tuple[int, int], dim: int) -> None:
    check(softmax(*shape, dim))


def test_softmax_for_the_lower_target() -> None:
    check(softmax(9, 100), target=detect("x86-64-v3"))


def layer_norm(rows: int, columns: int) -> str:
    t, r, w = f"tensor<{rows}x{columns}xf32>", f"tensor<{rows}xf32>", f"tensor<{columns}xf32>"
    return f"""(%x: {t}, %w: {w}, %b: {w}) -> ({t}, {r}, {r}) {{
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %n = stablehlo.constant dense<{columns}.0> : {r}
  %eps = stablehlo.constant dense<1.0e-5> : {r}
  %s = stablehlo.reduce(%x init: %z) {SUM} = [1] : ({t}, tensor<f32>) -> {r}
  %mean = stablehlo.divide %s, %n : {r}
  %mb = stablehlo.broadcast_in_dim %mean, dims = [0] : ({r}) -> {t}
  %c = stablehlo.subtract %x, %mb : {t}
  %sq = stablehlo.multiply %c, %c : {t}
  %v = stablehlo.reduce(%sq init: %z) {SUM} = [1] : ({t}, tensor<f32>) -> {r}
  %var = stablehlo.divide %v, %n : {r}
  %ve = stablehlo.add %var, %eps : {r}
  %rstd = stablehlo.rsqrt %ve : {r}
  %rb = stablehlo.broadcast_in_dim %rstd, dims = [0] : ({r}) -> {t}
  %y = stablehlo.multiply %c, %rb : {t}
  %wb = stablehlo.broadcast_in_dim %w, dims = [1] : ({w}) -> {t}
  %bb = stablehlo.broadcast_in_dim %b, dims = [1] : ({w}) -> {t}
  %yw = stablehlo.multiply %y, %wb : {t}
  %o = stablehlo.add %yw, %bb : {t}
  return %o, %mean, %rstd : {t}, {r}, {r}
}}
"""


@pytest.mark.parametrize("shape", [(1, 5), (7, 64), (33, 770)])
def test_layer_norm_with_its_row_results(shape: tuple[int, int]) -> None:
    check(layer_norm(*shape), tolerance=3e-5)


ARGMAX = """(%x: tensor<5x37xf32>) -> (tensor<5xf32>, tensor<5xi64>) {
  %ni = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %z = stablehlo.constant dense<0> : tensor<i64>
  %i = stablehlo.iota dim = 1 : tensor<5x37xi64>
  %r:2 = stablehlo.reduce(%x init: %ni), (%i init: %z) across dimensions = [1]
      : (tensor<5x37xf32>, tensor<5x37xi64>, tensor<f32>, tensor<i64>)
      -> (tensor<5xf32>, tensor<5xi64>)
   reducer(%a: tensor<f32>, %b: tensor<f32>) (%ia: tensor<i64>, %ib: tensor<i64>) {
    %g = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %e = stablehlo.compare EQ, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %lt = stablehlo.compare LT, %ia, %ib : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %el = stablehlo.and %e, %lt : tensor<i1>
    %p = stablehlo.or %g, %el : tensor<i1>
    %v = stablehlo.select %p, %a, %b : tensor<i1>, tensor<f32>
    %j = stablehlo.select %p, %ia, %ib : tensor<i1>, tensor<i64>
    stablehlo.return %v, %j : tensor<f32>, tensor<i64>
  }
  return %r#0, %r#1 : tensor<5xf32>, tensor<5xi64>
}
"""


def test_two_carried_values() -> None:
    check(ARGMAX)


def test_max_pool() -> None:
    check("""(%x: tensor<2x3x9x19xf32>) -> (tensor<2x3x5x10xf32>) {
  %ni = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %r = "stablehlo.reduce_window"(%x, %ni)
      <{padding = dense<[[0, 0], [0, 0], [1, 1], [1, 1]]> : tensor<4x2xi64>,
      window_dimensions = array<i64: 1, 1, 3, 3>, window_strides = array<i64: 1, 1, 2, 2>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %m = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }) : (tensor<2x3x9x19xf32>, tensor<f32>) -> tensor<2x3x5x10xf32>
  return %r : tensor<2x3x5x10xf32>
}
""")


CONTRACTIONS = {
    "matmul": """(%a: tensor<7x33xf32>, %b: tensor<33x18xf32>) -> (tensor<7x18xf32>) {
  %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<7x33xf32>, tensor<33x18xf32>) -> tensor<7x18xf32>
  return %r : tensor<7x18xf32>
}
""",
    "batched, transposed": """(%a: tensor<3x7x33xf32>, %b: tensor<3x18x33xf32>)
    -> (tensor<3x7x18xf32>) {
  %r = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [2]
      : (tensor<3x7x33xf32>, tensor<3x18x33xf32>) -> tensor<3x7x18xf32>
  return %r : tensor<3x7x18xf32>
}
""",
    "integer": """(%a: tensor<7x33xi64>, %b: tensor<33x18xi64>) -> (tensor<7x18xi64>) {
  %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<7x33xi64>, tensor<33x18xi64>) -> tensor<7x18xi64>
  return %r : tensor<7x18xi64>
}
""",
    "grouped convolution": """(%x: tensor<2x4x9x11xf32>, %w: tensor<6x2x3x3xf32>)
    -> (tensor<2x6x5x6xf32>) {
  %r = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
      window = {stride = [2, 2], pad = [[1, 1], [1, 1]],
      rhs_dilate = [1, 1]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64}
      : (tensor<2x4x9x11xf32>, tensor<6x2x3x3xf32>) -> tensor<2x6x5x6xf32>
  return %r : tensor<2x6x5x6xf32>
}
""",
    "dilated convolution": """(%x: tensor<1x3x9x11xf32>, %w: tensor<5x3x3x2xf32>)
    -> (tensor<1x5x17x19xf32>) {
  %r = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
      window = {stride = [1, 1], pad = [[2, 2], [0, 0]],
      lhs_dilate = [2, 2],
      rhs_dilate = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
      : (tensor<1x3x9x11xf32>, tensor<5x3x3x2xf32>) -> tensor<1x5x17x19xf32>
  return %r : tensor<1x5x17x19xf32>
}
""",
}


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_contractions_can_be_pulled(name: str) -> None:
    check(CONTRACTIONS[name], tolerance=1e-4)
