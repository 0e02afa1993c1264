"""Writes docs/architecture.md: one small model through every stage, with the texts the stages made.

In: docs/architecture.template.md, and a real compilation. Out: the same document with every
`{{name}}` replaced. Invariant: no time, path, hash or host detail gets in, so two can be compared.
"""

from __future__ import annotations

import os
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_mlir import ir

FOLDER = Path(__file__).resolve().parent
TEMPLATE = FOLDER / "architecture.template.md"
DOCUMENT = FOLDER / "architecture.md"
# One target for all readers; every x86-64 processor since 2013 runs it.
TARGET = "x86-64-v3"
HASH = re.compile(r"\b[0-9a-f]{12,64}\b")

MODEL = '''\
class Gate(torch.nn.Module):
    """Scores for eight choices: RMSNorm, a linear layer, softmax."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(32))
        self.linear = torch.nn.Linear(32, 8)

    def forward(self, x):
        scale = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
        return torch.softmax(self.linear(x * scale * self.weight), -1)
'''


def compile_model(folder: Path) -> None:
    """Compile the model with artifacts and cache below `folder`."""
    os.environ["TORCH_NEURONX_DEBUG_DIR"] = str(folder / "debug")
    os.environ["TORCH_NEURONX_NEFF_CACHE_DIR"] = str(folder / "cache")
    import torch

    scope: dict[str, object] = {"torch": torch, "__name__": "gate"}
    exec(compile(MODEL, "gate.py", "exec"), scope)
    torch.manual_seed(0)
    model = scope["Gate"]()  # type: ignore[operator]
    options = {"model_name": "gate", "target": TARGET}
    compiled = torch.compile(model, backend="neuron", fullgraph=True, options=options)
    x = torch.randn(64, 32)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))


def artifact(folder: Path, kind: str, suffix: str) -> Path:
    """The one file of this kind that the compilation left."""
    [found] = (folder / "debug" / kind).glob(f"*{suffix}")
    return found


@dataclass(frozen=True, slots=True)
class Passed:
    """What the passes did, a table row for each, and the kernels made of their result."""

    rows: list[str]
    kernels: str


def passed(before: str) -> Passed:
    """Run the passes on the lowered module once more, with somebody looking on."""
    from torch_mlir import ir

    from neuron_compile.lowering.context import new_context
    from neuron_compile.passes import run_pipeline

    rows: list[str] = []
    with new_context():
        module = ir.Module.parse(before)
        seen = [str(module)]

        def observe(name: str, changed: ir.Module) -> None:
            text = str(changed)
            effect = "nothing to do here" if text == seen[-1] else ""
            rows.append(f"| `{name}` | {_operations(text)} | {effect} |")
            seen.append(text)

        run_pipeline(module, observer=observe)
        return Passed(rows, kernel_text(module))


def kernel_text(module: ir.Module) -> str:
    """All kernels, as `neff.build` generates them."""
    from neuron_compile.neff.codegen.dispatch import generate
    from neuron_compile.neff.codegen.module import read_program
    from neuron_compile.neff.target import parse

    groups = read_program(module).groups.values()
    return "".join(k.text for group in groups for k in generate(group, parse(TARGET)))


def _operations(text: str) -> int:
    return len(re.findall(r"= (?:stablehlo|chlo|call)", text))


def members(data: bytes) -> Iterator[str]:
    """The names of the files inside the NEFF."""
    with tarfile.open(fileobj=BytesIO(data[1024:])) as archive:
        for member in archive:
            yield member.name


def text(folder: Path) -> dict[str, str]:
    """Every name of the template -> its text."""
    from neuron_compile.neff import reader

    before = artifact(folder, "stablehlo", ".before.mlir").read_text()
    made = passed(before)
    data = artifact(folder, "neff", ".neff").read_bytes()
    neff = reader.read(data)
    cached = [p.relative_to(folder / "cache") for p in sorted((folder / "cache").rglob("*.neff"))]
    kernels = [
        f"| `{k.name}` | {k.kind} | {k.launches} | "
        + ", ".join(sorted({Path(where).name for where in k.locations}))
        + " |"
        for k in neff.plan.kernels
    ]
    tensors = [
        f"| {t.name} | {t.dtype} | {list(t.shape)} | {t.nbytes} |"
        for t in (*neff.plan.inputs, *neff.plan.outputs, *neff.plan.constants)
    ]
    return {
        "model": MODEL,
        "fx": artifact(folder, "fx_graphs", ".txt").read_text(),
        "before": before,
        "steps": "\n".join(made.rows),
        "after": artifact(folder, "stablehlo", ".after.mlir").read_text(),
        "kernel": first_kernel(made.kernels),
        "members": "\n".join(members(data)),
        "kernels": "\n".join(kernels),
        "tensors": "\n".join(tensors),
        "scratch": str(neff.plan.scratch_bytes),
        "provenance": "\n".join(neff.provenance),
        "cache": "\n".join(re.sub(r"/../(?=[0-9a-f]{64}/)", "/<2>/", str(p)) for p in cached),
    }


def first_kernel(kernels: str) -> str:
    """The first kernel of the emitted text; all of them would be too long to read."""
    found = re.search(r"^llvm\.func internal @.*?^}$", kernels, flags=re.DOTALL | re.MULTILINE)
    if found is None:
        raise ValueError("the emitted text holds no kernel")
    return found.group()


def generate() -> str:
    """The whole document."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compile_model(folder)
        parts = text(folder)
    document = TEMPLATE.read_text(encoding="utf-8")
    for key, value in parts.items():
        document = document.replace("{{" + key + "}}", HASH.sub("<hash>", value.rstrip()))
    return document


if __name__ == "__main__":
    made = generate()
    left = re.findall(r"\{\{\w+\}\}", made)
    if left:
        sys.exit(f"the template has names nobody fills: {', '.join(left)}")
    DOCUMENT.write_text(made, encoding="utf-8")
