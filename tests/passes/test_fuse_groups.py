"""Which ops become one group: numbers of groups for known programs, and what must stay apart."""

from __future__ import annotations

import pytest

from tests.passes import programs
from tests.passes.checks import calls, compile_groups, functions, kinds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (programs.rms_norm(), ["loop"]),
        (programs.softmax(), ["loop"]),
        (programs.softmax(log=True), ["loop"]),
        (programs.layer_norm_backward(), ["loop", "loop"]),
        (programs.mlp(), ["contract", "contract"]),
        (programs.mlp(saved=True), ["contract", "contract"]),
        (programs.cross_entropy(), ["loop", "loop"]),
        (programs.conv_block(), ["contract"]),
    ],
    ids=["rms", "softmax", "log_softmax", "ln_bwd", "mlp", "mlp_saved", "cross_entropy", "conv"],
)
def test_number_of_groups(text: str, expected: list[str]) -> None:
    assert sorted(kinds(compile_groups(text))) == sorted(expected)


def main(arguments: str, results: str, body: str) -> str:
    """A module text; `#` stands for tensor<...>."""
    return f"func.func @main({arguments}) -> ({results}) {{\n{body}\n}}"


V, M = "tensor<64xf32>", "tensor<64x32xf32>"


def test_siblings_that_read_the_same_input_share_a_kernel() -> None:
    module = compile_groups(
        main(
            f"%x: {M}",
            f"{M}, {M}",
            f" %0 = stablehlo.exponential %x : {M}\n %1 = stablehlo.tanh %x : {M}\n"
            f" return %0, %1 : {M}, {M}",
        )
    )
    assert len(calls(module)) == 1


def test_strangers_stay_apart() -> None:
    module = compile_groups(
        main(
            f"%x: {M}, %y: {M}",
            f"{M}, {M}",
            f" %0 = stablehlo.exponential %x : {M}\n %1 = stablehlo.tanh %y : {M}\n"
            f" return %0, %1 : {M}, {M}",
        )
    )
    assert len(calls(module)) == 2


def test_an_expensive_value_with_readers_in_two_kernels_is_stored() -> None:
    """tanh(x) feeds a row sum and a column sum: two kernels, and tanh is in one of them only."""
    module = compile_groups(
        main(
            f"%x: {M}",
            f"{V}, tensor<32xf32>",
            f""" %z = stablehlo.constant dense<0.0> : tensor<f32>
 %0 = stablehlo.tanh %x : {M}
 %1 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [1]
    : ({M}, tensor<f32>) -> {V}
 %2 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [0]
    : ({M}, tensor<f32>) -> tensor<32xf32>
 return %1, %2 : {V}, tensor<32xf32>""",
        )
    )
    assert len(calls(module)) == 2
    assert str(module).count("stablehlo.tanh") == 1


def test_a_cheap_value_of_an_argument_is_recomputed() -> None:
    module = compile_groups(
        main(
            f"%x: {M}, %m: {V}",
            f"{V}, tensor<32xf32>",
            f""" %z = stablehlo.constant dense<0.0> : tensor<f32>
 %b = stablehlo.broadcast_in_dim %m, dims = [0] : ({V}) -> {M}
 %0 = stablehlo.subtract %x, %b : {M}
 %1 = stablehlo.reduce(%0 init: %z) applies stablehlo.maximum across dimensions = [1]
    : ({M}, tensor<f32>) -> {V}
 %2 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [0]
    : ({M}, tensor<f32>) -> tensor<32xf32>
 return %1, %2 : {V}, tensor<32xf32>""",
        )
    )
    assert len(calls(module)) == 2
    assert str(module).count("stablehlo.subtract") == 2


def test_row_sums_and_their_columns_do_not_nest() -> None:
    """sum over rows of (x / rowsum(x)): the row sum is stored, not computed once per column."""
    module = compile_groups(
        main(
            f"%x: {M}",
            "tensor<32xf32>",
            f""" %z = stablehlo.constant dense<0.0> : tensor<f32>
 %0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1]
    : ({M}, tensor<f32>) -> {V}
 %1 = stablehlo.broadcast_in_dim %0, dims = [0] : ({V}) -> {M}
 %2 = stablehlo.divide %x, %1 : {M}
 %3 = stablehlo.reduce(%2 init: %z) applies stablehlo.add across dimensions = [0]
    : ({M}, tensor<f32>) -> tensor<32xf32>
 return %3 : tensor<32xf32>""",
        ),
        rtol=1e-5,
    )
    assert all(str(f).count("stablehlo.reduce(") == 1 for f in functions(module).values())


def test_a_softmax_is_not_read_transposed_in_its_own_kernel() -> None:
    square = "tensor<16x16xf32>"
    text = programs.softmax(16, 16).replace(
        f"return %9 : {square}",
        f"""%10 = stablehlo.transpose %9, dims = [1, 0] : ({square}) -> {square}
  %11 = stablehlo.add %9, %10 : {square}
  return %11 : {square}""",
    )
    assert len(calls(compile_groups(text))) == 2


def test_a_cycle_through_another_group_is_refused() -> None:
    """a = tanh(x); b = a @ w; c = a + b: a and c would need b in between."""
    s = "tensor<32x32xf32>"
    module = compile_groups(
        main(
            f"%x: {s}, %w: {s}",
            f"{s}",
            f""" %0 = stablehlo.tanh %x : {s}
 %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0] : ({s}, {s}) -> {s}
 %2 = stablehlo.add %0, %1 : {s}
 return %2 : {s}""",
        )
    )
    assert kinds(module) == ["loop", "contract"]


def test_an_expensive_prologue_stays_out_of_a_dot() -> None:
    s = "tensor<32x32xf32>"
    for op, expected in (("exponential", ["loop", "contract"]), ("negate", ["contract"])):
        module = compile_groups(
            main(
                f"%x: {s}, %w: {s}",
                f"{s}",
                f""" %0 = stablehlo.{op} %x : {s}
 %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0] : ({s}, {s}) -> {s}
 return %1 : {s}""",
            )
        )
        assert kinds(module) == expected


def test_what_only_the_epilogue_reads_may_be_expensive() -> None:
    s = "tensor<32x32xf32>"
    module = compile_groups(
        main(
            f"%x: {s}, %w: {s}, %y: {s}",
            f"{s}",
            f""" %0 = stablehlo.exponential %y : {s}
 %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : ({s}, {s}) -> {s}
 %2 = stablehlo.multiply %0, %1 : {s}
 return %2 : {s}""",
        )
    )
    assert kinds(module) == ["contract"]


def test_two_dots_are_two_groups_and_a_reduction_is_no_epilogue() -> None:
    s = "tensor<32x32xf32>"
    module = compile_groups(
        main(
            f"%x: {s}, %w: {s}",
            "tensor<32xf32>",
            f""" %z = stablehlo.constant dense<0.0> : tensor<f32>
 %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : ({s}, {s}) -> {s}
 %1 = stablehlo.dot_general %w, %x, contracting_dims = [1] x [0] : ({s}, {s}) -> {s}
 %2 = stablehlo.add %0, %1 : {s}
 %3 = stablehlo.reduce(%2 init: %z) applies stablehlo.add across dimensions = [1]
    : ({s}, tensor<f32>) -> tensor<32xf32>
 return %3 : tensor<32xf32>""",
        )
    )
    assert kinds(module) == ["contract", "contract", "loop"]


def test_embedding_and_norm_are_one_kernel() -> None:
    text = """
func.func @main(%w: tensor<50x16xf32>, %ids: tensor<2x6xi64>) -> tensor<2x6x16xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %n = stablehlo.constant dense<0.0625> : tensor<2x6xf32>
  %0 = "stablehlo.gather"(%w, %ids) <{dimension_numbers = #stablehlo.gather<offset_dims = [2],
      collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>,
      slice_sizes = array<i64: 1, 16>}> : (tensor<50x16xf32>, tensor<2x6xi64>) -> tensor<2x6x16xf32>
  %1 = stablehlo.multiply %0, %0 : tensor<2x6x16xf32>
  %2 = stablehlo.reduce(%1 init: %z) applies stablehlo.add across dimensions = [2]
      : (tensor<2x6x16xf32>, tensor<f32>) -> tensor<2x6xf32>
  %3 = stablehlo.multiply %2, %n : tensor<2x6xf32>
  %4 = stablehlo.rsqrt %3 : tensor<2x6xf32>
  %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x16xf32>
  %6 = stablehlo.multiply %0, %5 : tensor<2x6x16xf32>
  return %6 : tensor<2x6x16xf32>
}"""
    assert kinds(compile_groups(text)) == ["loop"]


def test_pooling_takes_a_cheap_producer() -> None:
    for op, expected in (("maximum", 1), ("tanh", 2)):
        relu = (
            " %0 = stablehlo.maximum %x, %c : tensor<1x2x8x8xf32>"
            if op == "maximum"
            else " %0 = stablehlo.tanh %x : tensor<1x2x8x8xf32>"
        )
        text = f"""
func.func @main(%x: tensor<1x2x8x8xf32>) -> tensor<1x2x4x4xf32> {{
 %c = stablehlo.constant dense<0.0> : tensor<1x2x8x8xf32>
 %l = stablehlo.constant dense<0xFF800000> : tensor<f32>
{relu}
 %1 = "stablehlo.reduce_window"(%0, %l) <{{
     padding = dense<[[0, 0], [0, 0], [1, 0], [1, 0]]> : tensor<4x2xi64>,
     window_dimensions = array<i64: 1, 1, 3, 3>, window_strides = array<i64: 1, 1, 2, 2>}}> ({{
 ^bb0(%a: tensor<f32>, %b: tensor<f32>):
   %2 = stablehlo.maximum %a, %b : tensor<f32>
   stablehlo.return %2 : tensor<f32>
 }}) : (tensor<1x2x8x8xf32>, tensor<f32>) -> tensor<1x2x4x4xf32>
 return %1 : tensor<1x2x4x4xf32>
}}"""
        assert kinds(compile_groups(text)) == ["loop"] * expected


@pytest.mark.parametrize(
    ("name", "body", "result", "expected"),
    [
        (
            "cumulative sum",
            """ %0 = "stablehlo.reduce_window"(%x, %z) <{
     padding = dense<[[0, 0], [5, 0]]> : tensor<2x2xi64>,
     window_dimensions = array<i64: 1, 6>, window_strides = array<i64: 1, 1>}> ({
 ^bb0(%a: tensor<f32>, %b: tensor<f32>):
   %2 = stablehlo.add %a, %b : tensor<f32>
   stablehlo.return %2 : tensor<f32>
 }) : (tensor<4x6xf32>, tensor<f32>) -> tensor<4x6xf32>""",
            "4x6xf32",
            ["scan"],
        ),
        (
            "sort of a transpose",
            """ %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>
 %i = stablehlo.iota dim = 1 : tensor<6x4xi32>
 %s:2 = "stablehlo.sort"(%t, %i) <{dimension = 1 : i64, is_stable = true}> ({
 ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
   %2 = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
   stablehlo.return %2 : tensor<i1>
 }) : (tensor<6x4xf32>, tensor<6x4xi32>) -> (tensor<6x4xf32>, tensor<6x4xi32>)
 %j = stablehlo.convert %s#1 : (tensor<6x4xi32>) -> tensor<6x4xf32>
 %0 = stablehlo.add %s#0, %j : tensor<6x4xf32>""",
            "6x4xf32",
            ["sort"],
        ),
        (
            "scatter with a prologue",
            """ %u = stablehlo.exponential %x : tensor<4x6xf32>
 %i = stablehlo.constant dense<[[1], [0], [1], [2]]> : tensor<4x1xi64>
 %b = stablehlo.broadcast_in_dim %z, dims = [] : (tensor<f32>) -> tensor<3x6xf32>
 %0 = "stablehlo.scatter"(%b, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
     update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
     index_vector_dim = 1>}> ({
 ^bb0(%a: tensor<f32>, %c: tensor<f32>):
   %2 = stablehlo.add %a, %c : tensor<f32>
   stablehlo.return %2 : tensor<f32>
 }) : (tensor<3x6xf32>, tensor<4x1xi64>, tensor<4x6xf32>) -> tensor<3x6xf32>""",
            "3x6xf32",
            ["scatter"],
        ),
    ],
)
def test_kinds_of_their_own(name: str, body: str, result: str, expected: list[str]) -> None:
    text = f"""
func.func @main(%x: tensor<4x6xf32>) -> tensor<{result}> {{
 %z = stablehlo.constant dense<0.0> : tensor<f32>
{body}
 return %0 : tensor<{result}>
}}"""
    assert kinds(compile_groups(text)) == expected


def test_dropout_is_one_random_group() -> None:
    text = """
func.func @main(%x: tensor<64xf32>, %state: tensor<2xui64>) -> (tensor<64xf32>, tensor<64xi1>) {
  %p = stablehlo.constant dense<2147483648> : tensor<64xui32>
  %two = stablehlo.constant dense<2.0> : tensor<64xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<64xf32>
  %s, %bits = stablehlo.rng_bit_generator %state, algorithm = THREE_FRY
      : (tensor<2xui64>) -> (tensor<2xui64>, tensor<64xui32>)
  %0 = stablehlo.compare LT, %bits, %p : (tensor<64xui32>, tensor<64xui32>) -> tensor<64xi1>
  %1 = stablehlo.multiply %x, %two : tensor<64xf32>
  %2 = stablehlo.select %0, %1, %zero : tensor<64xi1>, tensor<64xf32>
  return %2, %0 : tensor<64xf32>, tensor<64xi1>
}"""
    from neuron_compile.passes import run_pipeline
    from tests import oracle
    from tests.passes.checks import check_contract

    module = oracle.parse(text)
    run_pipeline(module)
    check_contract(module)
    assert kinds(module) == ["random"]


def test_few_rows_do_not_take_a_large_consumer() -> None:
    """One row of 2^16: the sum is split, and the division is a parallel kernel of its own."""
    text = programs.softmax(1, 1 << 16)
    assert len(calls(compile_groups(text, rtol=1e-4))) > 1
