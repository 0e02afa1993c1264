"""What is noted about a graph for people: the user's function, names of its inputs, its text.

In: Dynamo's graph, AOTAutograd's graphs made of it. Out: `Notes` for the entry. Invariant: none of
it gets into a key; what cannot be found out is empty.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Sequence
from functools import lru_cache

import torch.fx
from torch._functorch._aot_autograd.descriptors import PlainAOTInput, TangentAOTInput

from neuron_compile.cache.notes import INPUT, OTHER, WEIGHT, InputNote, Notes
from neuron_compile.graph_text import graph_text

_META = "neuron_note"
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_ROOT = re.compile(r"[LG]\['(\w+)'\]")
_STEP = re.compile(r"\.?_(modules|parameters|buffers)\['([^']*)'\]")


def input_notes(graph: torch.fx.GraphModule) -> tuple[InputNote, ...]:
    """One note for each placeholder of the graph that Dynamo captured."""
    return tuple(_input_note(node) for node in graph.graph.find_nodes(op="placeholder"))


def annotate(part: torch.fx.GraphModule, inputs: Sequence[InputNote]) -> None:
    """Leave on each placeholder of AOTAutograd's graph the note that `notes` collects later.

    `inputs` are those of Dynamo's graph, by whose positions AOTAutograd describes its own.
    """
    for node in part.graph.find_nodes(op="placeholder"):
        made_of = node.meta.get("desc")
        if isinstance(made_of, PlainAOTInput) and made_of.idx < len(inputs):
            node.meta[_META] = inputs[made_of.idx]
        elif isinstance(made_of, TangentAOTInput):
            node.meta[_META] = InputNote(OTHER, "gradient")
        else:
            node.meta[_META] = InputNote(OTHER, "saved" if node.stack_trace else "")


def input_name(node: torch.fx.Node) -> str:
    """What the user calls this placeholder, or its name in the graph."""
    note = node.meta.get(_META)
    return note.name if note is not None and note.name else node.name


def notes(graph: torch.fx.GraphModule) -> Notes:
    """The notes of a concrete graph whose key could be made."""
    placeholders = graph.graph.find_nodes(op="placeholder")
    return Notes(
        function=user_function(graph),
        inputs=tuple(node.meta.get(_META, InputNote(OTHER, "")) for node in placeholders),
        graph=graph_text(graph),
    )


def user_function(graph: torch.fx.GraphModule) -> str:
    """`Head.forward` or `step`: the outermost function of the user's that the graph is of, or an
    empty text. Wrappers that decorators make are passed over where there is another.
    """
    for node in graph.graph.nodes:
        frames = _FRAME.findall(node.stack_trace or "")
        if frames:
            found = (_qualified(file, int(line), name) for file, line, name in frames)
            return next((name for name, nested in found if not nested), frames[0][2])
    return ""


def _input_note(node: torch.fx.Node) -> InputNote:
    argument = node.meta.get("grapharg")
    text = getattr(getattr(argument, "source", None), "name", "")
    root = _ROOT.match(text) if isinstance(text, str) else None
    if root is None:
        return InputNote(OTHER, "")
    steps = _STEP.findall(text, root.end())
    if steps and steps[-1][0] != "modules":
        names = [name for _, name in steps]
        name = ".".join(names if root[1] == "self" else [root[1], *names])
        return InputNote(WEIGHT, name if name.isprintable() else "")
    name = root[1] + text[root.end() :]
    return InputNote(INPUT, name if name.isprintable() else "")


@lru_cache(maxsize=1024)
def _qualified(file: str, line: int, name: str) -> tuple[str, bool]:
    """The function at this line with the class around it, and whether a function is around it."""
    try:
        tree: ast.AST = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):  # no Python file, or one that has changed meanwhile
        return name, False
    path: list[ast.AST] = []
    inner: ast.AST | None = tree
    while inner is not None:
        inner = next((n for n in ast.iter_child_nodes(inner) if _holds(n, line)), None)
        path += [inner] if inner is not None else []
    scopes = [n for n in path if isinstance(n, ast.ClassDef | ast.FunctionDef)]
    named = [n.name for n in scopes]
    if name not in named:
        return name, False
    at = len(named) - 1 - named[::-1].index(name)
    classes = [n.name for n in scopes[:at] if isinstance(n, ast.ClassDef)]
    return ".".join([*classes[-1:], name]), any(isinstance(n, ast.FunctionDef) for n in scopes[:at])


def _holds(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    return first is not None and last is not None and first <= line <= last
