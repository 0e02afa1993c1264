"""`python -m neuron_compile.lowering.coverage`: write what follows from the registry.

In: the registry. Out: `docs/ops.md` (the table of operators) and `lowering/kept_whole.py` (what
AOTAutograd must not decompose). Invariant: the same registry gives the same bytes.
"""

from __future__ import annotations

import pathlib
import sys
from collections import defaultdict

from torch._decomp import core_aten_decompositions

from neuron_compile.lowering import registry, torch_mlir_table

_ROOT = pathlib.Path(__file__).resolve().parent.parent

_KEPT_HEADER = '''\
"""Operators PyTorch could decompose and we do not, by name: each has an emitter of ours.

In: nothing. Out: overload names. Invariant: written by `python -m neuron_compile.lowering.coverage`
from the registry; a test fails when it is stale.
"""

KEPT_WHOLE = frozenset(
    {
'''

_INTRODUCTION = """\
# Operators

Written by `python -m neuron_compile.lowering.coverage`; do not edit.

{count} overloads have a StableHLO emitter of ours. An asterisk marks those with conditions, which
the error message names. Operators that are not listed are decomposed by PyTorch before lowering, or
are reported as unsupported.
"""


_COMPLEX = """\
Complex tensors are pairs of real ones; what treats both parts alike is the real emitter, twice."""


def kept_whole_text() -> str:
    """The contents of `lowering/kept_whole.py`."""
    ours = {*registry.all_rules(), *registry.complex_rules()}
    names = sorted({str(op) for op in core_aten_decompositions() if op in ours})
    return _KEPT_HEADER + "".join(f'        "{name}",\n' for name in names) + "    }\n)\n"


def table_text() -> str:
    """The contents of `docs/ops.md`."""
    rules = registry.all_rules()
    families: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for overload, rule in rules.items():
        mark = "\\*" if rule.supports is not None else ""
        packet, _, name = str(overload).rpartition(".")
        families[rule.family][packet].append(name + mark)
    lines = [_INTRODUCTION.format(count=len(rules)).rstrip()]
    for family in sorted(families):
        lines += ["", f"## {family}", "", "| operator | overloads |", "|---|---|"]
        lines += [
            f"| `{packet}` | {', '.join(sorted(names))} |"
            for packet, names in sorted(families[family].items())
        ]
    names = sorted(str(overload) for overload in registry.complex_rules())
    lines += ["", "## With complex tensors", "", _COMPLEX, ""]
    lines += [", ".join(f"`{name}`" for name in names)]
    lines += ["", "## By way of Torch-MLIR", ""]
    lines += [f"- `{name}`" for name in sorted(map(str, torch_mlir_table.translated()))]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write both files."""
    (_ROOT / "docs").mkdir(exist_ok=True)
    (_ROOT / "docs" / "ops.md").write_text(table_text(), encoding="utf-8")
    (_ROOT / "lowering" / "kept_whole.py").write_text(kept_whole_text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
