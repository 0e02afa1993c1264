"""The error function, its complement and its inverse.

In: an `Expr` of f32 or f64. Out: the same type, within the errors that docs/math.md lists. Methods:
erf a = 1 - e**-g(a) with the smooth function g = -log(erfc a); erfc by a fit of e**(x*x) erfc(x)
(M. M. Shepherd and J. G. Laframboise, Math. Comp. 36, 1981); erf_inv in terms of -log(1 - x*x) (M.
Giles, "Approximating the erfinv function", GPU Computing Gems, 2011).
"""

from __future__ import annotations

from neuron_compile.neff.codegen.math_exp import EXP_TAIL, LN2_SHORT, LOG2_E, exp_short
from neuron_compile.neff.codegen.math_expr import F32, INFINITY, NAN, Expr, at_most, fma, where
from neuron_compile.neff.codegen.math_log import log
from neuron_compile.neff.codegen.math_long import exp_pair
from neuron_compile.neff.codegen.math_pair import exact_product

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

# erf(x) / x - 1 in powers of x**2 for |x| <= 1/2 (f64); error relative to 1 2**-55.8.
_ERF_SMALL = (
    0.12837916709551256, -0.37612638903183476, 0.11283791670925573, -0.026866170632957723,
    0.005223977374143681, -0.0008548297851801715, 0.00012053339836585843,
    -1.4845965971497013e-05, 1.4727033192367264e-06,
)  # fmt: skip

# (x + c) e**(x*x) erfc(x) in powers of t = (x - c) / (x + c), c = _ERFC_CENTRE, up to _ERFC_ZERO;
# in f64 for both formats; relative error 2**-31.6, 2**-54.0 (the leading coefficient's rounding).
_ERFC_CENTRE = {"f32": 2.0, "f64": 4.0}
_ERFC_FIT = {
    "f32": (
        1.0215827054358766, -0.6871606880515553, 0.279472071097457, -0.0364420861649729,
        -0.021510228967332956, 0.006477654497195332, 0.0030870151346174867,
        -0.0008312457665206374, -0.0006483833362683986, 2.6628143639521765e-05,
        0.00011551283780687578, 2.842896049788446e-05,
    ),
    "f64": (
        1.095995661000491, -0.976548729080882, 0.7732087022652567, -0.5408538313132462,
        0.33085158787690744, -0.17401093723942562, 0.07638151493354312, -0.026370053348038356,
        0.006112055382430428, -0.00028095882009641384, -0.0004550508811736054,
        0.00017681279145012905, -3.6426038135696075e-06, -1.8861842969823076e-05,
        4.714108420926333e-06, 1.4293161166226046e-06, -8.796585764309423e-07,
        -8.809819916191394e-08, 1.5924342029561932e-07, 1.7443962869483557e-08,
        -3.60161990372713e-08, -1.112277040309419e-08, 6.08313679860704e-09, 3.0479426508665053e-09,
    ),
}  # fmt: skip
# Here erfc rounds to 0.
_ERFC_ZERO = {"f32": 10.1, "f64": 27.3}

# erf_inv(x) / x by pieces: (upper end of w, centre, coefficients). The first is in powers of
# w - centre, the others of sqrt(w) - centre; relative errors 2**-24.6, 2**-54.3 and below.
_INVERSE_PIECES = {
    "f32": (
        (5.0, 2.5, (
            1.5014094114303589, 0.24664027988910675, -0.004177669063210487, -0.0012527556391432881,
            0.00021857804676983505, -4.943505246046698e-06, -3.5238931559433695e-06,
            4.5995693653821945e-07, 2.8208974711674273e-08, -8.237201143401762e-09,
        )),
        (INFINITY, 3.125, (
            2.958320140838623, 1.0037187337875366, 0.007048930507153273, -0.005301015451550484,
            0.0037817887496203184, -0.0025224818382412195, 0.0013113023014739156,
            -0.000318784499540925, -0.00017463022959418595, 0.00012585698277689517,
        )),
    ),
    "f64": (
        (6.25, 3.125, (
            1.6536545626831027, 0.24015818242558834, -0.006033670871427535, -0.0007407025341546617,
            0.00018673420802308674, -1.3882523393802244e-05, -1.3654691820149606e-06,
            4.2347881650575895e-07, -2.9070385339882606e-08, -4.1126601388797265e-09,
            1.0512199913137448e-09, -5.414319002698999e-11, -1.297758161830952e-11,
            2.6305773230819608e-12, -8.101034593420341e-14, -4.003030356164065e-14,
            6.567514335771526e-15, -3.807197926512268e-17, -1.2699520772446893e-16,
            1.5404613337484402e-17, 9.290323392464857e-19, -3.425830691112578e-19,
            7.718823767198455e-21, 3.1020625443980307e-21, -1.5431626988933287e-22,
        )),
        (16.0, 3.25, (
            3.0838856104922208, 1.0052589676941652, 0.005370914553541668, -0.0037512085082223342,
            0.002491442098208165, -0.0016882755351980067, 0.0009532893435647467,
            -0.00035503782083338113, 2.4031427682584085e-05, 6.828719249773533e-05,
            -4.731980859350204e-05, 1.246461306813241e-05, 2.928095956114283e-06,
            -3.984401676176062e-06, 1.4947201297989978e-06, -2.996677915914212e-08,
            -2.676895064826346e-07, 1.3384908856539523e-07, -7.043455909418718e-10,
            -1.620844041384561e-08,
        )),
        (INFINITY, 5.0, (
            4.849906401408584, 1.0103004648645455, -0.00013871931836514359, -0.0002150301198402602,
            7.599527753668361e-05, -1.9681770517844217e-05, 4.526058948281466e-06,
            -9.930304576390858e-07, 2.2901813072454964e-07, -6.755303603857605e-08,
            2.912117247143131e-08, -1.5260110945319095e-08, 7.645840734468118e-09,
            -3.466982931019907e-09, 1.4898848965510435e-09, -4.3940072472204697e-10,
            -2.2833746234896363e-11, 4.314643994695897e-11,
        )),
    ),
}  # fmt: skip


def erf(x: Expr) -> Expr:
    fmt = x.format
    a = at_most(abs(x), _ONE[fmt.elem])
    g = fma(a, a.polynomial(_G_TAIL[fmt.elem]), a)
    t = fma(g, -LOG2_E, fmt.magic)
    n = t - fmt.magic
    r = g
    for part in LN2_SHORT[fmt.elem]:
        r = fma(n, part, r)
    # 1 - e**-r, the polynomial's odd powers negated.
    tail = [c if i % 2 else -c for i, c in enumerate(EXP_TAIL[fmt.elem])]
    q = fma(r * r, r.polynomial(tail), r)
    power = ((t.bits() << fmt.mantissa) + fmt.one).as_float(fmt.elem)
    return fma(q, power, 1.0 - power).with_sign_of(x)


def erfc(x: Expr) -> Expr:
    """1 - erf x, precise also where it is small. f32 is computed in f64."""
    if x.format is F32:
        return _erfc_f32(x.cast("arith.extf", "f64")).cast("arith.truncf", "f32")
    a = at_most(abs(x), _ERFC_ZERO["f64"])
    square = exact_product(a, a)
    value = _erfcx(a, "f64") * exp_pair(-square.high, -square.low)
    value = where(x < 0.0, 2.0 - value, value)
    small = fma(x, (x * x).polynomial(_ERF_SMALL), x)
    return where(a < 0.5, 1.0 - small, value)


def _erfc_f32(x: Expr) -> Expr:
    a = at_most(abs(x), _ERFC_ZERO["f32"])
    value = _erfcx(a, "f32") * exp_short(-(a * a))
    return where(x < 0.0, 2.0 - value, value)


def _erfcx(a: Expr, elem: str) -> Expr:
    """e**(a*a) erfc(a) for 0 <= a <= _ERFC_ZERO, to the precision of `elem`."""
    centre = _ERFC_CENTRE[elem]
    divisor = a + centre
    return ((a - centre) / divisor).polynomial(_ERFC_FIT[elem]) / divisor


def erf_inv(x: Expr) -> Expr:
    """The y with erf y = x: +-inf at +-1, NaN beyond."""
    w = -log(fma(-x, x, 1.0))
    first, *others = _INVERSE_PIECES[x.format.elem]
    result = (w - first[1]).polynomial(first[2])
    end, root = first[0], w.square_root()
    for following, centre, coefficients in others:
        result = where(w >= end, (root - centre).polynomial(coefficients), result)
        end = following
    result = where(abs(x).equals(1.0), INFINITY, result) * x
    return where(abs(x) > 1.0, NAN, result)
