"""All benchmark cases by name, in the order of the report."""

from benchmarks.case import Case
from benchmarks.cases import kernels, language, optimizers, vision

CASES: dict[str, Case] = {
    case.name: case for case in (*kernels.CASES, *language.CASES, *optimizers.CASES, *vision.CASES)
}
