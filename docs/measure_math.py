"""Prints the table of docs/math.md: errors and cost of the math library on this machine.

In: nothing; run from the repository's root, `python docs/measure_math.py`. Out: Markdown on stdout.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import mpmath as mp
import numpy as np
import torch

from tests.neff.codegen.math_kernels import BINARY, DTYPES, TARGETS, Form, Kernel, forms
from tests.neff.codegen.math_reference import CASES, Case, exactly, ulps, ulps_exact

COUNT = 8192  # elements per timed call: in the second-level cache
EAGER_BINARY = {"atan2": torch.atan2, "fmod": torch.fmod, "pow": torch.pow}
EAGER_NAMES = {"logistic": "sigmoid", "erf_inv": "erfinv"}


def sample(case: Case, dtype: np.dtype, count: int) -> np.ndarray:
    """Arguments all over the interval where the function is interesting, and of all magnitudes."""
    rng = np.random.default_rng(1)
    even = rng.uniform(case.low, case.high, count)
    size = np.exp(rng.uniform(-30, np.log(max(case.high, 1.0)), count // 2))
    signs = [1] if case.low >= 0 else [-1, 1]
    return np.concatenate([even, size * rng.choice(signs, count // 2)]).astype(dtype)


def errors(name: str) -> tuple[float, float]:
    """Greatest error found in f32 and f64."""
    case = CASES[name]
    x = sample(case, DTYPES["f32"], 2_000_000)
    f32 = ulps(Kernel(name, forms("f32")[0])(x), case.eager(x.astype(np.float64)))
    x = sample(case, DTYPES["f64"], 300 if name in ("digamma", "lgamma", "erf_inv") else 5000)
    with mp.workdps(40):
        f64 = ulps_exact(Kernel(name, forms("f64")[0])(x), exactly(case.exact, x))
    return float(f32.max()), float(f64.max())


def nanoseconds(call: Callable[[], object]) -> float:
    """Least time of a call per element."""
    best = np.inf
    for _ in range(100):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best / COUNT * 1e9


def arguments(name: str, dtype: np.dtype) -> list[np.ndarray]:
    rng = np.random.default_rng(2)
    if name in BINARY:
        return [rng.uniform(0.1, 8, COUNT).astype(dtype), rng.uniform(-4, 4, COUNT).astype(dtype)]
    case = CASES[name]
    return [rng.uniform(max(case.low, -4), min(case.high, 4), COUNT).astype(dtype)]


def cost(name: str, form: Form) -> float:
    x = arguments(name, DTYPES[form.elem])
    kernel = Kernel(name, form)
    return nanoseconds(kernel.bind([*x, np.empty_like(x[0])]))


def eager_cost(name: str, elem: str) -> float | None:
    function = EAGER_BINARY.get(name) or getattr(torch, EAGER_NAMES.get(name, name), None)
    if function is None:
        return None
    x = [torch.from_numpy(a) for a in arguments(name, DTYPES[elem])]
    out = torch.empty_like(x[0])
    return nanoseconds(lambda: function(*x, out=out))


def row(name: str) -> str:
    cells = [f"`{name}`"]
    cells += [f"{e:.2f}" for e in errors(name)] if name in CASES else ["", ""]
    for elem in DTYPES:
        cells += [f"{cost(name, form):.2f}" for form in forms(elem)[: len(TARGETS)]]
        eager = eager_cost(name, elem)
        cells.append("" if eager is None else f"{eager:.2f}")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    torch.set_num_threads(1)
    heads = ["function", "ulp f32", "ulp f64"]
    for elem in DTYPES:
        heads += [f"{elem} {target.isa}" for target in TARGETS] + [f"{elem} eager"]
    print("| " + " | ".join(heads) + " |")
    print("|" + "---|" * len(heads))
    for name in (*CASES, *BINARY):
        print(row(name), flush=True)


if __name__ == "__main__":
    main()
