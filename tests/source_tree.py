"""The source files of the checkout by installed module name, and what each of them imports.

In: the repository's root. Out: records that the structure tests read. Nothing is imported or run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAGES = ("lowering", "passes", "neff", "cache")


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module (or a name in it, when that is a module), and where it is written."""

    module: str
    where: str


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Installed module name -> file, for every Python file that a wheel contains."""
    roots = {"neuron_compile": root / "neuron_compile"}
    roots |= {f"neuron_compile.{stage}": root / stage for stage in STAGES}
    found = {}
    for package, folder in roots.items():
        for file in sorted(folder.rglob("*.py")):
            parts = [package, *file.relative_to(folder).with_suffix("").parts]
            found[".".join(parts).removesuffix(".__init__")] = file
    return found


def imports(name: str, known: dict[str, Path]) -> list[Import]:
    """Every import statement of the module at any depth, except those for type checkers only.

    `from a import b` counts as `a.b` where that is a module of this repository, else as `a`.
    """
    file = known[name]
    found = []
    for node in _run_nodes(ast.parse(file.read_text(encoding="utf-8"))):
        where = f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            found += [Import(alias.name, where) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, name, file)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.append(Import(inner if inner in known else base, where))
    return found


def closure(start: str, known: dict[str, Path]) -> dict[str, list[str]]:
    """Everything that importing `start` may lead to -> the chain of modules that leads there."""
    chains = {start: [start]}
    todo = [start]
    while todo:
        name = todo.pop()
        if name not in known:
            continue
        reached = [imported.module for imported in imports(name, known)]
        reached += [".".join(name.split(".")[:depth]) for depth in range(1, name.count(".") + 1)]
        for module in reached:
            if module not in chains:
                chains[module] = [*chains[name], module]
                todo.append(module)
    return chains


def _run_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield other
                yield from _run_nodes(other)
            continue
        yield node
        yield from _run_nodes(node)


def _absolute(node: ast.ImportFrom, name: str, file: Path) -> str:
    if node.level == 0:
        return node.module or ""
    package = name.split(".")
    drop = node.level - (1 if file.name == "__init__.py" else 0)
    base = package[: len(package) - drop]
    return ".".join([*base, node.module] if node.module else base)
