"""The error function.

In: an `Expr` of f32 or f64. Out: the same type, within the errors that `math_table` lists.
Method: erf a = 1 - e**-g(a) with g = -log(erfc a), a smooth function: one polynomial and one e**r - 1.
"""

from __future__ import annotations

from neuron_compile.neff.codegen.math_exp import EXP_TAIL, LN2_PARTS, LOG2_E
from neuron_compile.neff.codegen.math_expr import Expr, at_most, fma

# -log(erfc a) / a - 1 for 0 <= a <= 4 (f32), 6 (f64); error in terms of erf a 2**-27.8, 2**-56.3.
_G_TAIL = {
    "f32": (
        0.12837916612625122, 0.6366195678710938, 0.10277630388736725, -0.019147826358675957,
        -0.00016948588017839938, 0.0016756432596594095, -0.000637335644569248,
        0.00011885041021741927, -9.386345482198521e-06,
    ),
    "f64": (
        0.1283791670955126, 0.6366197723675762, 0.1027726033022912, -0.01912844701841954,
        -0.0002091945083655946, 0.0016962047999826999, -0.0005901165872071788,
        2.584287809668157e-05, 6.459638236940249e-05, -2.9955337504952073e-05,
        3.8030379961414376e-06, 2.302730677814607e-06, -1.1715346067613707e-06,
        -1.5361731455712932e-07, 4.773195944334074e-07, -3.3302990580035273e-07,
        1.5289175797076276e-07, -5.3068037253831274e-08, 1.4502629915136966e-08,
        -3.1476977300418684e-09, 5.383673987037593e-10, -7.106821598043557e-11,
        6.983770824770972e-12, -4.805437017064101e-13, 2.0633955364473688e-14,
        -4.155931852305795e-16,
    ),
}  # fmt: skip
# Here erf rounds to 1.
_ONE = {"f32": 4.0, "f64": 6.0}


def erf(x: Expr) -> Expr:
    fmt = x.format
    a = at_most(abs(x), _ONE[fmt.elem])
    g = fma(a, a.polynomial(_G_TAIL[fmt.elem]), a)
    t = fma(g, -LOG2_E, fmt.magic)
    n = t - fmt.magic
    r = g
    for part in LN2_PARTS[fmt.elem]:
        r = fma(n, part, r)
    # 1 - e**-r, the polynomial's odd powers negated.
    tail = [c if i % 2 else -c for i, c in enumerate(EXP_TAIL[fmt.elem])]
    q = fma(r * r, r.polynomial(tail), r)
    power = ((t.bits() << fmt.mantissa) + fmt.one).as_float(fmt.elem)
    return fma(q, power, 1.0 - power).with_sign_of(x)
