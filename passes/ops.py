"""What the passes know about each op: its family and what one element of it costs.

In: op names as `Graph` gives them (no "stablehlo." prefix). Out: sets of names and costs.
A cost is a rough count of vector instructions per element, from the lengths of the polynomials that
code generation emits. Invariant: an op of no family is `single`.
"""

from __future__ import annotations

# Elementwise ops: result i depends on operands at i (scalars of select and clamp apart).
ELEMENTWISE: dict[str, int] = {
    name: cost
    for cost, names in (
        (1, ("abs", "add", "and", "bitcast_convert", "ceil", "clamp", "compare", "complex")),
        (1, ("convert", "floor", "imag", "is_finite", "maximum", "minimum", "multiply", "negate")),
        (1, ("not", "or", "real", "reduce_precision", "select", "sign")),
        (1, ("round_nearest_afz", "round_nearest_even", "shift_left", "subtract", "xor")),
        (1, ("shift_right_arithmetic", "shift_right_logical")),
        (1, ("chlo.is_inf", "chlo.is_neg_inf", "chlo.is_pos_inf", "chlo.square", "chlo.conj")),
        (1, ("chlo.next_after",)),
        (4, ("divide", "sqrt", "rsqrt", "popcnt", "count_leading_zeros")),
        (8, ("remainder",)),
        (12, ("exponential", "exponential_minus_one", "log", "log_plus_one", "cbrt")),
        (20, ("cosine", "logistic", "sine", "tanh", "tan", "chlo.erf", "chlo.erfc")),
        (20, ("chlo.asin", "chlo.acos", "chlo.atan", "chlo.tan", "chlo.sinh", "chlo.cosh")),
        (20, ("chlo.asinh", "chlo.acosh", "chlo.atanh", "chlo.erf_inv")),
        (30, ("atan2", "power")),
        (80, ("chlo.lgamma", "chlo.digamma", "chlo.polygamma", "chlo.zeta", "chlo.bessel_i1e")),
    )
    for name in names
}

# Pure changes of the index; never materialised without a reason.
VIEWS = frozenset(("broadcast_in_dim", "reshape", "transpose", "slice", "reverse"))

# Pulled like views, but with a choice or a load per element: duplicated only where single-use.
MOVES: dict[str, int] = {
    "concatenate": 2,
    "pad": 2,
    "gather": 3,
    "dynamic_slice": 1,
    "dynamic_update_slice": 3,
}

# Values without data inputs.
SOURCES = frozenset(("constant", "iota"))

REDUCTIONS = frozenset(("reduce",))
WINDOWS = frozenset(("reduce_window",))

# Ops that are the heart of a group of their own kind: op name -> kind.
ANCHORS = {
    "dot_general": "contract",
    "convolution": "contract",
    "scatter": "scatter",
    "select_and_scatter": "scatter",
    "sort": "sort",
    "rng_bit_generator": "random",
}

KINDS = ("loop", "contract", "attention", "scatter", "sort", "scan", "random", "single")


def is_pull(name: str) -> bool:
    """Whether each result element is a function of its index, so that a `loop` may hold the op."""
    return (
        name in ELEMENTWISE
        or name in VIEWS
        or name in MOVES
        or name in SOURCES
        or name in REDUCTIONS
        or name in WINDOWS
    )


def element_cost(name: str) -> int:
    """Vector instructions per result element, views and sources free."""
    return ELEMENTWISE.get(name) or MOVES.get(name, 0)
