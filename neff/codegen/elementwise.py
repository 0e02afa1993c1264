"""Elementwise StableHLO and CHLO operations on emitter values.

In: operand values and types. Out: the result value. f16 and bf16 are computed in f32 and keep
that precision inside a kernel; they are rounded where StableHLO converts and where they are
stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from neuron_compile.errors import CodegenError
from neuron_compile.neff.codegen import math_table
from neuron_compile.neff.codegen.emitter import Emitter
from neuron_compile.neff.codegen.program import Node, Tensor
from neuron_compile.neff.codegen.softmax import is_below_maximum, is_share
from neuron_compile.neff.codegen.value import FLOAT_BITS, Val, bits_of

NARROW_FLOATS = ("f16", "bf16")


def compute_elem(tensor: Tensor) -> str:
    """Element type in registers."""
    return "f32" if tensor.elem in NARROW_FLOATS else tensor.signless


def widen(e: Emitter, value: Val, tensor: Tensor) -> Val:
    """A value as it lies in memory, in its compute type."""
    if tensor.elem == "bf16":
        wide = e.cast("arith.extui", value, "i32")
        return e.bitcast(e.binary("arith.shli", wide, e.const("i32", 16, wide.lanes)), "f32")
    return e.cast("arith.extf", value, "f32") if tensor.elem == "f16" else value


def narrow(e: Emitter, value: Val, tensor: Tensor) -> Val:
    """A computed value in the type that memory holds."""
    if tensor.elem == "bf16":
        return to_bfloat16(e, value)
    return e.cast("arith.truncf", value, "f16") if tensor.elem == "f16" else value


def to_bfloat16(e: Emitter, value: Val) -> Val:
    """Bits (i16) of the bfloat16 nearest to an f32 (or f64 by way of f32, as in PyTorch), ties to
    even.

    In integers: the processor's instruction for it (vcvtneps2bf16) would flush denormals to zero.
    """
    if value.elem == "f64":
        value = e.cast("arith.truncf", value, "f32")
    lanes = value.lanes
    bits = e.bitcast(value, "i32")
    sixteen = e.const("i32", 16, lanes)
    odd = e.binary("arith.andi", e.binary("arith.shrui", bits, sixteen), e.const("i32", 1, lanes))
    rounded = e.add(bits, e.add(odd, e.const("i32", 0x7FFF, lanes)))
    quiet = e.binary("arith.ori", bits, e.const("i32", 0x00400000, lanes))
    kept = e.select(e.compare("uno", value, value), quiet, rounded)
    return e.cast("arith.trunci", e.binary("arith.shrui", kept, sixteen), "i16")


def round_to(e: Emitter, value: Val, tensor: Tensor) -> Val:
    """Round to the precision of `tensor`, staying in the compute type."""
    return widen(e, narrow(e, value, tensor), tensor)


Rule = Callable[[Emitter, Node, Sequence[Val]], Val]


def _binary(
    float_rule: Callable[[Emitter, Val, Val], Val], signed: str, unsigned: str | None = None
) -> Rule:
    def rule(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
        if v[0].is_float:
            return float_rule(e, v[0], v[1])
        if unsigned and (node.tensor.unsigned or node.elem == "i1"):  # true would be -1
            return e.binary(unsigned, v[0], v[1])
        return e.binary(signed, v[0], v[1])

    return rule


def maximum(e: Emitter, a: Val, b: Val) -> Val:
    """IEEE 754-2019 maximum: NaN from either side, +0 above -0."""
    return e.binary("arith.maximumf", a, b)


def minimum(e: Emitter, a: Val, b: Val) -> Val:
    return e.binary("arith.minimumf", a, b)


def running_maximum(e: Emitter, a: Val, b: Val) -> Val:
    """NaN from either side; the sign of a zero may be either one's. Three instructions."""
    return e.select(e.compare("uno", a, a), a, e.select(e.compare("ogt", a, b), a, b))


def running_minimum(e: Emitter, a: Val, b: Val) -> Val:
    return e.select(e.compare("uno", a, a), a, e.select(e.compare("olt", a, b), a, b))


def _add(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    return e.binary("arith.ori", v[0], v[1]) if v[0].elem == "i1" else e.add(v[0], v[1])


def _multiply(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    return e.binary("arith.andi", v[0], v[1]) if v[0].elem == "i1" else e.mul(v[0], v[1])


def _subtract(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    return e.sub(*v)


def _exponential(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    below = is_below_maximum(node.operands[0])
    return math_table.exp_nonpositive(e, v[0]) if below else math_table.exp(e, v[0])


def _divide(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    if v[0].is_float:
        once_per_row = v[0].lanes and v[1].depth < v[0].depth
        return math_table.share(e, *v) if once_per_row and is_share(node) else e.div(*v)
    a, b, overflow = _safe_divisor(e, node, v)
    quotient = e.binary("arith.divui" if node.tensor.unsigned else "arith.divsi", a, b)
    zero = e.compare("eq", v[1], e.const(v[1].elem, 0))
    result = e.select(zero, e.const(a.elem, -1, a.lanes), quotient)
    return e.select(overflow, v[0], result) if overflow else result


def _remainder(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    if v[0].is_float:
        return math_table.fmod(e, *e.match(*v))
    a, b, overflow = _safe_divisor(e, node, v)
    rest = e.binary("arith.remui" if node.tensor.unsigned else "arith.remsi", a, b)
    zero = e.compare("eq", v[1], e.const(v[1].elem, 0))
    result = e.select(zero, v[0], rest)
    return e.select(overflow, e.const(a.elem, 0, a.lanes), result) if overflow else result


def _safe_divisor(e: Emitter, node: Node, v: Sequence[Val]) -> tuple[Val, Val, Val | None]:
    """Operands for which the processor does not trap: StableHLO leaves x/0 and MIN/-1 to us."""
    a, b = e.match(*v)
    zero = e.compare("eq", b, e.const(b.elem, 0, b.lanes))
    one = e.const(b.elem, 1, b.lanes)
    if node.tensor.unsigned:
        return a, e.select(zero, one, b), None
    lowest = e.const(a.elem, -(1 << (bits_of(a.elem) - 1)), a.lanes)
    overflow = e.binary(
        "arith.andi", e.compare("eq", a, lowest), e.compare("eq", b, e.const(b.elem, -1, b.lanes))
    )
    return a, e.select(e.binary("arith.ori", zero, overflow), one, b), overflow


def _abs(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    if v[0].is_float:
        return e.abs(v[0])
    return e.select(e.compare("slt", v[0], e.const(v[0].elem, 0, v[0].lanes)), e.neg(v[0]), v[0])


def _sign(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    x = v[0]
    zero, one = e.const(x.elem, 0, x.lanes), e.const(x.elem, 1, x.lanes)
    if not x.is_float:
        negative = e.const(x.elem, -1, x.lanes)
        below = e.compare("slt", x, zero)
        return e.select(
            e.compare("eq", x, zero),
            zero,
            one if node.tensor.unsigned else e.select(below, negative, one),
        )
    magnitude = e.binary("math.copysign", one, x)
    return e.select(e.compare("une", x, x), x, e.select(e.compare("oeq", x, zero), x, magnitude))


_DIRECTIONS = {
    "EQ": ("oeq", "eq", "eq"),
    "NE": ("une", "ne", "ne"),
    "LT": ("olt", "slt", "ult"),
    "LE": ("ole", "sle", "ule"),
    "GT": ("ogt", "sgt", "ugt"),
    "GE": ("oge", "sge", "uge"),
}


def _compare(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    source = node.operands[0].tensor
    floating, signed, unsigned = _DIRECTIONS[node.attributes["comparison_direction"]]
    if source.elem in FLOAT_BITS:
        if node.attributes.get("compare_type") == "TOTALORDER":
            return e.compare(signed, *(total_order_bits(e, x) for x in v))
        return e.compare(floating, *v)
    return e.compare(unsigned if source.unsigned or source.elem == "i1" else signed, *v)


def total_order_bits(e: Emitter, x: Val) -> Val:
    """Signed integers in the total order of floats: -NaN, -inf, ..., -0, +0, ..., +inf, +NaN."""
    bits = e.bitcast(x, f"i{bits_of(x.elem)}")
    width = bits_of(bits.elem)
    sign = e.binary("arith.shrsi", bits, e.const(bits.elem, width - 1, bits.lanes))
    flip = e.binary("arith.andi", sign, e.const(bits.elem, (1 << (width - 1)) - 1, bits.lanes))
    return e.binary("arith.xori", bits, flip)


def _select(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    return e.select(*v)


def _clamp(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    """min(max(x, low), high), operands in StableHLO's order low, x, high."""
    low, x, high = v
    if x.is_float:
        return minimum(e, maximum(e, x, low), high)
    kind = "u" if node.tensor.unsigned else "s"
    return e.binary(f"arith.min{kind}i", e.binary(f"arith.max{kind}i", x, low), high)


def _shift(op: str) -> Rule:
    """Shifts by the width or more give 0 (arithmetic right: the sign), as StableHLO says."""

    def rule(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
        a, b = e.match(*v)
        bits = bits_of(a.elem)
        inside = e.compare("ult", b, e.const(b.elem, bits, b.lanes))
        most = e.const(b.elem, bits - 1, b.lanes)
        shifted = e.binary(op, a, e.select(inside, b, most))
        if op == "arith.shrsi":
            return shifted
        return e.select(inside, shifted, e.const(a.elem, 0, a.lanes))

    return rule


def convert(e: Emitter, value: Val, source: Tensor, target: Tensor) -> Val:
    """StableHLO `convert`; a float outside the integer's range saturates, NaN becomes 0."""
    to = compute_elem(target)
    if source.elem == target.elem:
        return value
    if target.elem == "i1":
        predicate = "une" if value.is_float else "ne"
        return e.compare(predicate, value, e.const(value.elem, 0, value.lanes))
    if value.is_float and to in FLOAT_BITS:
        if bits_of(to) > bits_of(value.elem):
            value = e.cast("arith.extf", value, to)
        elif bits_of(to) < bits_of(value.elem):
            if target.elem in NARROW_FLOATS:  # one rounding, straight from f64
                return widen(e, narrow(e, value, target), target)
            value = e.cast("arith.truncf", value, to)
        return round_to(e, value, target) if target.elem in NARROW_FLOATS else value
    if value.is_float:
        return float_to_int(e, value, target)
    if to in FLOAT_BITS:
        if (
            target.elem in NARROW_FLOATS and bits_of(value.elem) > 16
        ):  # exact in f64 up to 53 bits, then one rounding
            op = "arith.uitofp" if source.unsigned or source.elem == "i1" else "arith.sitofp"
            return round_to(e, e.cast(op, value, "f64"), target)
        op = "arith.uitofp" if source.unsigned or source.elem == "i1" else "arith.sitofp"
        return round_to(e, e.cast(op, value, to), target)
    if bits_of(to) > bits_of(value.elem):
        extend = "arith.extui" if source.unsigned or source.elem == "i1" else "arith.extsi"
        return e.cast(extend, value, to)
    return e.cast("arith.trunci", value, to) if bits_of(to) < bits_of(value.elem) else value


def float_to_int(e: Emitter, value: Val, target: Tensor) -> Val:
    """Truncation towards zero with saturation; NaN gives 0."""
    bits = bits_of(target.signless)
    wide = value.elem
    low, high = (
        (0, (1 << bits) - 1) if target.unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    )
    nan = e.compare("uno", value, value)
    safe = e.select(nan, e.const(wide, 0, value.lanes), value)
    under = e.compare("olt", safe, e.const(wide, float(low), value.lanes))
    over = e.compare("oge", safe, e.const(wide, float(high + 1), value.lanes))
    outside = e.binary("arith.ori", under, over)
    inside = e.select(outside, e.const(wide, 0, value.lanes), safe)
    result = e.cast("arith.fptoui" if target.unsigned else "arith.fptosi", inside, target.signless)
    result = e.select(under, e.const(result.elem, low, result.lanes), result)
    return e.select(over, e.const(result.elem, high, result.lanes), result)


def _convert(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    return convert(e, v[0], node.operands[0].tensor, node.tensor)


def _bitcast(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    source, target = node.operands[0].tensor, node.tensor
    if bits_of(source.signless) != bits_of(target.signless):
        raise CodegenError(f"bitcast_convert from {source.elem} to {target.elem} changes the width")
    return widen(e, e.bitcast(narrow(e, v[0], source), target.stored), target)


def _reduce_precision(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    exponent, mantissa = node.attributes["exponent_bits"], node.attributes["mantissa_bits"]
    formats = {(8, 7): "bf16", (5, 10): "f16", (8, 23): "f32"}
    elem = formats.get((exponent, mantissa))
    if elem is None:
        raise CodegenError(f"reduce_precision to e{exponent}m{mantissa} has no kernel")
    value = v[0]
    if bits_of(elem) >= bits_of(value.elem):
        return value
    through = Tensor(node.shape, elem, node.tensor.strides)
    rounded = (
        round_to(e, value, through)
        if elem in NARROW_FLOATS
        else e.cast("arith.truncf", value, elem)
    )
    return e.cast("arith.extf", rounded, value.elem) if rounded.elem != value.elem else rounded


def _unary(rule: Callable[[Emitter, Val], Val]) -> Rule:
    def apply(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
        return rule(e, v[0])

    return apply


def _matched(rule: Callable[[Emitter, Val, Val], Val]) -> Rule:
    """Of two operands, as vectors of one length."""

    def apply(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
        a, b = e.match(v[0], v[1])
        return rule(e, a, b)

    return apply


def _instruction(op: str) -> Rule:
    def apply(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
        return e.unary(op, v[0]) if len(v) == 1 else e.binary(op, v[0], v[1])

    return apply


def _not(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    return e.binary("arith.xori", v[0], e.const(v[0].elem, -1, v[0].lanes))


def _is_finite(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    return e.compare("olt", e.abs(v[0]), e.const(v[0].elem, float("inf"), v[0].lanes))


def _is_inf(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    return e.compare("oeq", e.abs(v[0]), e.const(v[0].elem, float("inf"), v[0].lanes))


def _is_pos_inf(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    return e.compare("oeq", v[0], e.const(v[0].elem, float("inf"), v[0].lanes))


def _is_neg_inf(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    return e.compare("oeq", v[0], e.const(v[0].elem, float("-inf"), v[0].lanes))


def _round_away(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    """To nearest, halves away from zero. `math.round` would become a call of libm."""
    x = v[0]
    whole = e.unary("math.trunc", x)
    rest = e.abs(e.sub(x, whole))
    one = e.binary("math.copysign", e.const(x.elem, 1.0, x.lanes), x)
    away = e.compare("oge", rest, e.const(x.elem, 0.5, x.lanes))
    return e.select(away, e.add(whole, one), whole)


def _constant_like(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    return e.const(compute_elem(node.tensor), node.attributes["value"])


def _real_only(what: str) -> Rule:
    """`real` and `imag` of a real number."""

    def rule(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
        return v[0] if what == "real" else e.const(v[0].elem, 0.0, v[0].lanes)

    return rule


def _next_after(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    """The neighbour of x towards y in x's own type.

    One step of the bits, as integers in total order.
    """
    x, y = e.match(*v)
    raw = narrow(e, x, node.tensor)
    bits = bits_of(raw.elem)
    elem = f"i{bits}"
    pattern = e.bitcast(raw, elem)
    one = e.const(elem, 1, x.lanes)
    away = e.compare("ogt", e.abs(y), e.abs(x))
    same_side = e.compare(
        "oge", e.mul(e.binary("math.copysign", e.const(x.elem, 1.0), x), y), e.const(x.elem, 0.0)
    )
    outwards = e.binary("arith.andi", away, same_side)
    stepped = e.select(outwards, e.add(pattern, one), e.sub(pattern, one))
    sign = e.const(elem, 1 << (bits - 1), x.lanes)
    smallest = e.select(
        e.compare("olt", y, e.const(y.elem, 0.0, y.lanes)), e.binary("arith.ori", sign, one), one
    )
    is_zero = e.compare("oeq", x, e.const(x.elem, 0.0, x.lanes))
    stepped = e.select(is_zero, smallest, stepped)
    result = widen(e, e.bitcast(stepped, raw.elem), node.tensor)
    result = e.select(e.compare("oeq", x, y), y, result)
    return e.select(e.compare("uno", x, y), e.add(x, y), result)


def _power(e: Emitter, node: Node, v: Sequence[Val]) -> Val:
    a, b = e.match(*v)
    return math_table.pow(e, a, b) if a.is_float else _integer_power(e, node, a, b)


def _integer_power(e: Emitter, node: Node, base: Val, exponent: Val) -> Val:
    """Square and multiply over all exponent bits; a negative exponent gives 1/base**n truncated."""
    one, zero = e.const(base.elem, 1, base.lanes), e.const(base.elem, 0, base.lanes)
    result, square = one, base
    for bit in range(min(bits_of(base.elem), 64)):
        set_ = e.compare(
            "ne", e.binary("arith.andi", exponent, e.const(base.elem, 1 << bit, base.lanes)), zero
        )
        result = e.select(set_, e.mul(result, square), result)
        square = e.mul(square, square)
    if node.tensor.unsigned:
        return result
    odd = e.compare("ne", e.binary("arith.andi", exponent, one), zero)
    minus = e.const(base.elem, -1, base.lanes)
    inverse = e.select(e.compare("eq", base, one), one, zero)
    inverse = e.select(e.compare("eq", base, minus), e.select(odd, minus, one), inverse)
    return e.select(e.compare("slt", exponent, zero), inverse, result)


RULES: dict[str, Rule] = {
    "stablehlo.add": _add,
    "stablehlo.subtract": _subtract,
    "stablehlo.multiply": _multiply,
    "stablehlo.divide": _divide,
    "stablehlo.remainder": _remainder,
    "stablehlo.maximum": _binary(maximum, "arith.maxsi", "arith.maxui"),
    "stablehlo.minimum": _binary(minimum, "arith.minsi", "arith.minui"),
    "stablehlo.negate": lambda e, node, v: e.neg(v[0]),
    "stablehlo.abs": _abs,
    "stablehlo.sign": _sign,
    "stablehlo.compare": _compare,
    "stablehlo.select": _select,
    "stablehlo.clamp": _clamp,
    "stablehlo.convert": _convert,
    "stablehlo.bitcast_convert": _bitcast,
    "stablehlo.reduce_precision": _reduce_precision,
    "stablehlo.and": _instruction("arith.andi"),
    "stablehlo.or": _instruction("arith.ori"),
    "stablehlo.xor": _instruction("arith.xori"),
    "stablehlo.not": _not,
    "stablehlo.shift_left": _shift("arith.shli"),
    "stablehlo.shift_right_logical": _shift("arith.shrui"),
    "stablehlo.shift_right_arithmetic": _shift("arith.shrsi"),
    "stablehlo.popcnt": _instruction("math.ctpop"),
    "stablehlo.count_leading_zeros": _instruction("math.ctlz"),
    "stablehlo.floor": _instruction("math.floor"),
    "stablehlo.ceil": _instruction("math.ceil"),
    "stablehlo.round_nearest_even": _instruction("math.roundeven"),
    "stablehlo.sqrt": _instruction("math.sqrt"),
    "stablehlo.is_finite": _is_finite,
    "stablehlo.round_nearest_afz": _round_away,
    "stablehlo.real": _real_only("real"),
    "stablehlo.imag": _real_only("imag"),
    "chlo.is_inf": _is_inf,
    "chlo.is_pos_inf": _is_pos_inf,
    "chlo.is_neg_inf": _is_neg_inf,
    "chlo.square": lambda e, node, v: _multiply(e, node, (v[0], v[0])),
    "chlo.constant_like": _constant_like,
    "chlo.conj": _real_only("real"),
    "chlo.next_after": _next_after,
    "stablehlo.power": _power,
    **{op: _unary(rule) for op, rule in math_table.UNARY.items()},
    "stablehlo.exponential": _exponential,
    **{op: _matched(rule) for op, rule in math_table.BINARY.items()},
}
