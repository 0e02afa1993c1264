"""Attention kernels against the interpreter.

Causal and not, grouped shapes, odd sizes, row results.
"""

from __future__ import annotations

import numpy as np
import pytest

from neuron_compile.neff.codegen.attention_plan import AttentionPlan, plan_attention
from neuron_compile.neff.codegen.dispatch import generate
from neuron_compile.neff.codegen.loops import Root
from neuron_compile.neff.codegen.module import read_program
from neuron_compile.neff.target import Target, detect, make
from tests import oracle
from tests.neff.codegen.native import check, outlined, plain, run

TARGETS = [detect(), make("x86-64-v3")]
SUM = "applies stablehlo.add across dimensions = [2]"
MAX = "applies stablehlo.maximum across dimensions = [2]"


def attention(
    b: int,
    q: int,
    k: int,
    d: int,
    *,
    causal: bool = False,
    statistics: bool = False,
    offset: int = 0,
    also: str = "",
    maximum_of: str = "",
) -> str:
    """Batched [b, q, d] x [b, k, d] x [b, k, d], scaled, with a softmax over the keys.

    `causal`: keys up to the row's number + `offset`. `also`: a reduction `%also` of [b, q, k] that
    is added to the row results. `maximum_of`: whose maximum the softmax takes.
    """
    query, key, out = (
        f"tensor<{b}x{q}x{d}xf32>",
        f"tensor<{b}x{k}x{d}xf32>",
        f"tensor<{b}x{q}x{d}xf32>",
    )
    s, r, m = f"tensor<{b}x{q}x{k}xf32>", f"tensor<{b}x{q}xf32>", f"tensor<{b}x{q}x{k}xi1>"
    i = f"tensor<{b}x{q}x{k}xi64>"
    mask = f"""  %i = stablehlo.iota dim = 1 : {i}
  %j = stablehlo.iota dim = 2 : {i}
  %o = stablehlo.constant dense<{offset}> : {i}
  %last = stablehlo.add %i, %o : {i}
  %keep = stablehlo.compare LE, %j, %last : ({i}, {i}) -> {m}
  %inf = stablehlo.constant dense<0xFF800000> : {s}
  %masked = stablehlo.select %keep, %scaled, %inf : {m}, {s}
""" if causal else ""  # fmt: skip
    scores = "%masked" if causal else "%scaled"
    results = f"({out}, {r})" if statistics else f"({out})"
    returned = f"%out, %lse : {out}, {r}" if statistics else f"%out : {out}"
    extra = f"""{also}  %log = stablehlo.log %sum : {r}
  %lse = stablehlo.add %log, {"%also" if also else "%max"} : {r}
""" if statistics else ""  # fmt: skip
    return f"""(%q: {query}, %k: {key}, %v: {key}) -> {results} {{
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %ni = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %c = stablehlo.constant dense<0.25> : {s}
  %dot = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2]
      : ({query}, {key}) -> {s}
  %scaled = stablehlo.multiply %dot, %c : {s}
{mask}  %max = stablehlo.reduce({maximum_of or scores} init: %ni) {MAX} : ({s}, tensor<f32>) -> {r}
  %maxb = stablehlo.broadcast_in_dim %max, dims = [0, 1] : ({r}) -> {s}
  %shift = stablehlo.subtract {scores}, %maxb : {s}
  %exp = stablehlo.exponential %shift : {s}
  %sum = stablehlo.reduce(%exp init: %z) {SUM} : ({s}, tensor<f32>) -> {r}
  %sumb = stablehlo.broadcast_in_dim %sum, dims = [0, 1] : ({r}) -> {s}
  %p = stablehlo.divide %exp, %sumb : {s}
  %out = stablehlo.dot_general %p, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1]
      : ({s}, {key}) -> {out}
{extra}  return {returned}
}}
"""


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [(2, 8, 8, 16), (1, 70, 70, 32), (3, 17, 33, 20), (1, 5, 100, 64)])
def test_softmax_attention(size: tuple[int, int, int, int], causal: bool, target: Target) -> None:
    check(attention(*size, causal=causal), "attention", target=target, tolerance=1e-4)


@pytest.mark.parametrize("size", [(2, 8, 8, 16), (3, 37, 37, 20)])
def test_row_results_for_the_backward(size: tuple[int, int, int, int]) -> None:
    check(attention(*size, causal=True, statistics=True), "attention", tolerance=1e-4)


@pytest.mark.parametrize("size", [(2, 1, 33, 16), (1, 2, 3, 4)])
def test_few_rows_are_not_fused(size: tuple[int, int, int, int]) -> None:
    check(attention(*size), "attention", tolerance=1e-4)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize("offset", [-70, -3, 0, 40, 300])
@pytest.mark.parametrize("size", [(2, 203, 203, 16), (1, 70, 131, 20), (4, 9, 64, 33)])
def test_limits_of_all_kinds(size: tuple[int, int, int, int], offset: int, target: Target) -> None:
    """Rows that end within the first, some later or no panel of keys, and rows without any key."""
    agree_with_numpy(size, offset, target)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize("offset", [0, 1000, 3000])
@pytest.mark.parametrize("size", [(2, 29, 1501, 96), (1, 130, 1030, 130)])
def test_keys_too_long_for_the_stack(
    size: tuple[int, int, int, int], offset: int, target: Target
) -> None:
    agree_with_numpy(size, offset, target)


def agree_with_numpy(size: tuple[int, int, int, int], offset: int, target: Target) -> None:
    """The interpreter is slow."""
    text = attention(*size, causal=True, offset=offset)
    q, k, v = oracle.random_inputs(oracle.parse(plain(text)), 0)
    (got,) = run(outlined(text, "attention"), [q, k, v], target)
    scores = np.einsum("bqd,bkd->bqk", q, k).astype(float) / 4
    row, key = np.ogrid[: size[1], : size[2]]
    scores = np.where(key <= row + offset, scores, -np.inf)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(2, keepdims=True))
    want = weights / weights.sum(2, keepdims=True) @ v
    np.testing.assert_allclose(got, want, 1e-4, 1e-4)


def test_masked_keys_may_hold_anything() -> None:
    text = attention(1, 20, 140, 16, causal=True, statistics=True)
    q, k, v = oracle.random_inputs(oracle.parse(plain(text)), 0)
    want = run(outlined(text, "attention"), [q, k, v])
    k[:, 20::2], k[:, 21::2] = np.nan, np.inf
    for got, expected in zip(run(outlined(text, "attention"), [q, k, v]), want, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("size", [(3, 37, 140, 20), (1, 300, 300, 5)])
def test_values_behind_the_limit_that_are_not_finite_count(
    size: tuple[int, int, int, int], value: float, target: Target
) -> None:
    """0 times infinity is NaN: in the column and batch entry of the value, and only there."""
    b, q, k, d = size
    text = attention(*size, causal=True)
    inputs = oracle.random_inputs(oracle.parse(plain(text)), 0)
    (want,) = run(outlined(text, "attention"), inputs, target)
    inputs[2][b - 1, k - 1, d - 1] = value
    (got,) = run(outlined(text, "attention"), inputs, target)
    behind = slice(0, min(q, k - 1))
    assert np.isnan(got[b - 1, behind, d - 1]).all()
    got[b - 1, :, d - 1] = want[b - 1, :, d - 1]
    np.testing.assert_allclose(got, want, 1e-5, 1e-5)


def reduced(operand: str, kind: str = SUM) -> str:
    t, r = "tensor<1x20x140xf32>", "tensor<1x20xf32>"
    start = "%ni" if kind == MAX else "%z"
    return (
        f"  %also = stablehlo.reduce({operand} init: {start}) {kind} : ({t}, tensor<f32>) -> {r}\n"
    )


@pytest.mark.parametrize(
    "also",
    [reduced("%scaled"), reduced("%scaled", MAX), reduced("%dot", MAX), reduced("%exp", MAX)],
    ids=["sum", "maximum", "unscaled", "of exponentials"],
)
def test_reductions_that_see_masked_keys_see_them_all(also: str) -> None:
    text = attention(1, 20, 140, 16, causal=True, statistics=True, also=also)
    check(text, "attention", tolerance=1e-4)


def test_a_maximum_over_masked_keys_does_not_end_the_sum_early() -> None:
    text = attention(1, 20, 140, 16, causal=True, statistics=True, maximum_of="%scaled")
    check(text, "attention", tolerance=1e-4)


SCORES = "tensor<1x20x140xf32>"
SHARES = f"  %p = stablehlo.divide %exp, %sumb : {SCORES}\n"
TENTH = f"  %tenth = stablehlo.constant dense<0.1> : {SCORES}\n"
LOG = f"  %log = stablehlo.log %sumb : {SCORES}\n"


def with_weights(lines: str) -> str:
    """Causal attention whose weights `%p` are `lines` of its scores, exponentials and their sum."""
    text = attention(1, 20, 140, 16, causal=True)
    assert SHARES in text
    return text.replace(SHARES, lines)


def step(result: str, op: str, *operands: str) -> str:
    return f"  {result} = stablehlo.{op} {', '.join(operands)} : {SCORES}\n"


def plan_of(text: str, isa: str = "x86-64-v4") -> AttentionPlan | None:
    module = oracle.parse(outlined(text, "attention"))
    with module.context:
        (group,) = read_program(module).groups.values()
    leaves = {p: i for i, p in enumerate(group.parameters)}
    outputs = zip(group.results, group.outputs, strict=True)
    roots = [Root(n, o, len(leaves) + i) for i, (n, o) in enumerate(outputs)]
    first, second = (n for n in group.nodes() if n.op == "stablehlo.dot_general")
    return plan_attention(first, second, roots, leaves, make(isa))


@pytest.mark.parametrize(
    "lines",
    [
        TENTH
        + step("%less", "subtract", "%exp", "%tenth")
        + step("%p", "divide", "%less", "%sumb"),
        step("%twice", "exponential", "%exp") + step("%p", "divide", "%twice", "%sumb"),
        step("%p", "subtract", "%exp", "%sumb"),
        step("%p", "subtract", "%sumb", "%exp"),
        step("%share", "divide", "%exp", "%sumb") + step("%p", "exponential", "%share"),
        step("%share", "divide", "%exp", "%sumb") + step("%p", "cosine", "%share"),
        step("%p", "divide", "%sumb", "%exp"),
        LOG + step("%p", "divide", "%exp", "%log"),
        TENTH + step("%less", "subtract", "%tenth", "%shift") + step("%p", "exponential", "%less"),
    ],
    ids=[
        "less a constant",
        "exponential twice",
        "less the sum",
        "sum less",
        "exponential of shares",
        "cosine",
        "reciprocal",
        "over what may be 0",
        "exponential of infinity",
    ],
)
def test_weights_that_are_not_0_behind_a_mask_have_no_limit(lines: str) -> None:
    text = with_weights(lines)
    plan = plan_of(text)
    assert plan is not None
    assert plan.limit is None
    check(text, "attention", tolerance=1e-4)


@pytest.mark.parametrize("of", ["%scaled", "%dot", "%masked"])
def test_weights_that_also_see_scores_past_the_mask_have_no_limit(of: str) -> None:
    """Those scores would never be computed: 0 times what lay in the buffer before may be NaN."""
    lines = step("%share", "divide", "%exp", "%sumb") + step("%p", "multiply", "%share", of)
    plan = plan_of(with_weights(lines))
    assert plan is not None
    assert plan.limit is None
    check(with_weights(lines), "attention", tolerance=1e-4)


@pytest.mark.parametrize(
    "lines",
    [
        SHARES,
        LOG + step("%less", "subtract", "%shift", "%log") + step("%p", "exponential", "%less"),
        TENTH + step("%e", "multiply", "%tenth", "%exp") + step("%p", "divide", "%e", "%sumb"),
        TENTH + step("%more", "add", "%sumb", "%tenth") + step("%p", "divide", "%exp", "%more"),
    ],
    ids=["shares", "logarithms", "scaled", "smoothed"],
)  # fmt: skip
def test_weights_that_are_0_behind_a_mask_have_its_limit(lines: str) -> None:
    text = with_weights(lines)
    plan = plan_of(text)
    assert plan is not None
    assert plan.limit is not None
    assert plan.limit.offset == 1
    assert len(plan.limit.reductions) == 2
    check(text, "attention", tolerance=1e-4)


@pytest.mark.parametrize(
    ("shape", "dims"), [("140", "2"), ("20x140", "1, 2"), ("20", "1"), ("1x1", "0, 2")]
)
def test_a_division_by_what_is_no_value_of_the_row_stays_with_the_weights(
    shape: str, dims: str
) -> None:
    n = f"tensor<{shape}xf32>"
    text = with_weights(
        step("%share", "divide", "%exp", "%sumb")
        + f"  %nb = stablehlo.broadcast_in_dim %n, dims = [{dims}] : ({n}) -> {SCORES}\n"
        + step("%p", "divide", "%share", "%nb")
    ).replace(") -> (", f", %n: {n}) -> (", 1)
    plan = plan_of(text)
    assert plan is not None
    assert plan.divisor is None
    check(text, "attention", tolerance=1e-3)


def test_a_softmax_is_divided_once_per_result() -> None:
    plan = plan_of(with_weights(SHARES))
    assert plan is not None
    assert plan.divisor is not None
    assert plan.shares


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize("size", [(1, 6, 10, 100_000), (1, 5, 16_000, 20)])
def test_rows_too_long_for_the_stack(size: tuple[int, int, int, int], target: Target) -> None:
    """Of queries and results, as where channels attend to each other; of scores."""
    agree_with_numpy(size, size[2], target)


@pytest.mark.parametrize("size", [(0, 8, 8, 16), (2, 0, 8, 16), (2, 8, 8, 0)])
def test_without_a_result_there_is_nothing_to_do(size: tuple[int, int, int, int]) -> None:
    b, q, k, d = size
    inputs = [np.zeros((b, n, d), np.float32) for n in (q, k, k)]
    (got,) = run(outlined(attention(*size, causal=True), "attention"), inputs)
    assert got.shape == (b, q, d)


@pytest.mark.parametrize(
    ("isa", "keys", "limited"),
    [
        ("x86-64-v4", 8000, True),
        ("x86-64-v3", 8000, True),
        ("x86-64-v3", 16000, True),
        ("aarch64", 4000, True),
        ("aarch64", 6000, False),
        ("aarch64", 12000, True),
    ],
)
def test_no_loop_reads_past_the_limit_of_one_that_kept_its_row(
    isa: str, keys: int, limited: bool
) -> None:
    """Short vectors have many steps, and sums of many steps go block by block to the end."""
    plan = plan_of(attention(1, 8, keys, 4, causal=True), isa)
    assert plan is not None
    assert (plan.limit is not None) == limited


def test_scores_of_no_width_are_0() -> None:
    """Queries and keys without elements: every weight is the same."""
    text = attention(2, 9, 12, 5)
    query, key = "tensor<2x9x5xf32>", "tensor<2x12x5xf32>"
    for wide in (f"%q: {query}, %k: {key}", f"({query}, {key})"):
        assert text.count(wide) == 1
        text = text.replace(wide, wide.replace("x5x", "x0x"))
    v = np.random.default_rng(0).standard_normal((2, 12, 5)).astype(np.float32)
    none = [np.zeros((2, n, 0), np.float32) for n in (9, 12)]
    (got,) = run(outlined(text, "attention"), [*none, v])
    np.testing.assert_allclose(got, np.repeat(v.mean(1, keepdims=True), 9, 1), 1e-5, 1e-6)


def heads_in_rows(b: int, t: int, h: int, d: int) -> str:
    """Queries, keys and values as [b, t, h * d]: the rows of one head lie h * d apart."""
    flat, split = f"tensor<{b}x{t}x{h * d}xf32>", f"tensor<{b}x{t}x{h}x{d}xf32>"
    s, r, out = (
        f"tensor<{b}x{h}x{t}x{t}xf32>",
        f"tensor<{b}x{h}x{t}xf32>",
        f"tensor<{b}x{h}x{t}x{d}xf32>",
    )
    return f"""(%q: {flat}, %k: {flat}, %v: {flat}) -> ({out}) {{
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %ni = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %qh = stablehlo.reshape %q : ({flat}) -> {split}
  %kh = stablehlo.reshape %k : ({flat}) -> {split}
  %vh = stablehlo.reshape %v : ({flat}) -> {split}
  %dot = stablehlo.dot_general %qh, %kh, batching_dims = [0, 2] x [0, 2],
      contracting_dims = [3] x [3]
      : ({split}, {split}) -> {s}
  %max = stablehlo.reduce(%dot init: %ni) applies stablehlo.maximum across dimensions = [3]
      : ({s}, tensor<f32>) -> {r}
  %maxb = stablehlo.broadcast_in_dim %max, dims = [0, 1, 2] : ({r}) -> {s}
  %shift = stablehlo.subtract %dot, %maxb : {s}
  %exp = stablehlo.exponential %shift : {s}
  %sum = stablehlo.reduce(%exp init: %z) applies stablehlo.add across dimensions = [3]
      : ({s}, tensor<f32>) -> {r}
  %sumb = stablehlo.broadcast_in_dim %sum, dims = [0, 1, 2] : ({r}) -> {s}
  %p = stablehlo.divide %exp, %sumb : {s}
  %out = stablehlo.dot_general %p, %vh, batching_dims = [0, 1] x [0, 2],
      contracting_dims = [3] x [1]
      : ({s}, {split}) -> {out}
  return %out : {out}
}}
"""


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize("size", [(2, 13, 3, 8), (1, 70, 5, 16), (3, 6, 2, 33), (1, 9, 1, 20)])
def test_heads_side_by_side(size: tuple[int, int, int, int], target: Target) -> None:
    check(heads_in_rows(*size), "attention", target=target, tolerance=1e-4)


def test_rows_of_the_next_head_are_fetched_ahead() -> None:
    text = text_of(heads_in_rows(2, 24, 4, 32))
    assert text.count("llvm.intr.prefetch") == 6  # three operands, two cache lines a row
    assert "llvm.intr.prefetch" not in text_of(heads_in_rows(2, 128, 1, 8))  # tasks share rows


def text_of(text: str) -> str:
    module = oracle.parse(outlined(text, "attention"))
    with module.context:
        (group,) = read_program(module).groups.values()
    (kernel,) = generate(group, make("x86-64-v4"))
    return kernel.text
