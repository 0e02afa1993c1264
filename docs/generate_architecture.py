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
from io import BytesIO
from pathlib import Path

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


def steps(before: str) -> Iterator[str]:
    """One table row per pass: what it did to the number of operations."""
    from torch_mlir import ir

    from neuron_compile.lowering.context import new_context
    from neuron_compile.passes import run_pipeline

    with new_context():
        module = ir.Module.parse(before)
        text = [str(module)]
        counts = [_operations(text[0])]

        def observe(name: str, changed: ir.Module) -> None:
            text.append(str(changed))
            counts.append(_operations(text[-1]))
            effect = "changed" if text[-1] != text[-2] else "nothing to do"
            rows.append(f"| `{name}` | {counts[-1]} | {effect} |")

        rows: list[str] = []
        run_pipeline(module, observer=observe)
    yield from rows


def _operations(text: str) -> int:
    return len(re.findall(r"= (?:stablehlo|chlo|call)", text))


def members(data: bytes) -> Iterator[str]:
    """One line per file inside the NEFF; sizes only of those that other machines get alike."""
    with tarfile.open(fileobj=BytesIO(data[1024:])) as archive:
        for member in archive:
            yield member.name


def text(folder: Path) -> dict[str, str]:
    """Every name of the template -> its text."""
    from neuron_compile.neff import reader

    before = artifact(folder, "stablehlo", ".before.mlir").read_text()
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
        "steps": "\n".join(steps(before)),
        "after": artifact(folder, "stablehlo", ".after.mlir").read_text(),
        "kernel": excerpt(artifact(folder, "kernels", ".mlir").read_text()),
        "members": "\n".join(members(data)),
        "kernels": "\n".join(kernels),
        "tensors": "\n".join(tensors),
        "scratch": str(neff.plan.scratch_bytes),
        "provenance": "\n".join(f"| {name} |" for name in neff.provenance),
        "cache": "\n".join(map(str, cached)),
    }


def excerpt(kernels: str, lines: int = 90) -> str:
    """The beginning of the emitted text; all of it would be too long to read."""
    every = kernels.splitlines()
    rest = len(every) - lines
    return "\n".join(every[:lines] + ([f"// ... {rest} more lines"] if rest > 0 else []))


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
