"""Real text without a download: this repository's own documentation, licence and docstrings.

In: the checkout. Out: sentences or one long text. Invariant: the same files give the same order.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "LICENSE", "docs/*.md")
SOURCES = ("neuron_compile", "lowering", "passes", "neff", "cache")
SENTENCE_END = re.compile(r"(?<=[a-z\d)`][.!?:])\s+(?=[A-Z`])")


def documents() -> Iterator[str]:
    """Text of every document, fenced code and tables left out, then every docstring."""
    for pattern in DOCUMENTS:
        for file in sorted(ROOT.glob(pattern)):
            text = re.sub(r"```.*?```", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
            yield "\n".join(line for line in text.splitlines() if not line.startswith("|"))
    for folder in SOURCES:
        for file in sorted((ROOT / folder).rglob("*.py")):
            yield from _docstrings(ast.parse(file.read_text(encoding="utf-8")))


def sentences(limit: int) -> list[str]:
    """At most `limit` different sentences of five words or more, spread over the whole corpus."""
    found: dict[str, None] = {}
    for text in documents():
        for paragraph in re.split(r"\n\s*\n|\n(?=[#*-] )", text):
            for sentence in SENTENCE_END.split(" ".join(paragraph.split())):
                clean = sentence.lstrip("#*- ")
                if 5 <= len(clean.split()) <= 60:
                    found[clean] = None
    step = max(1.0, len(found) / limit)
    everything = list(found)
    return [everything[int(i * step)] for i in range(min(limit, len(everything)))]


def _docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text
