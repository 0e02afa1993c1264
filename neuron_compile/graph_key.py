"""The cache key of a graph, computed before lowering.

In: a concrete FX graph, the options and AOT facts that shape the code, the target. Out: a `Key`.
Invariants: whatever changes the compiled code changes the key; rank, device index, paths, users,
names and time do not (T136, T146). What cannot be written down exactly raises `Unhashable`, and the
caller goes without the cache.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from neuron_compile.cache.key import Key, make_key
from neuron_compile.graph_text import Unhashable, graph_text, value_text
from neuron_compile.shape_text import signature_text
from neuron_compile.source_digest import source_digest, versions

__all__ = ["Unhashable", "make_graph_key"]


def make_graph_key(
    graph: torch.fx.GraphModule,
    *,
    options_in_key: Mapping[str, object],
    target: str,
    aot: Mapping[str, object],
) -> Key:
    """The key of `graph` compiled with these options for `target` (ISA and features, as one text).

    `aot` says what the graph does not: forward, backward or inference; mutated and aliased
    arguments. Each option and each fact is a part of its own, so that a miss can name it. Every
    node's `meta["val"]` must be static.

    Raises `Unhashable` for symbolic sizes, Python functions, opaque objects and modules in the
    graph.
    """
    texts = {"graph": graph_text(graph), "target": target}
    # Python numbers and integer division take it, and no argument of the graph mentions it.
    texts["default_dtype"] = str(torch.get_default_dtype())
    texts |= {f"aot.{name}": value_text(value) for name, value in aot.items()}
    texts |= {f"option.{name}": value_text(value) for name, value in options_in_key.items()}
    try:
        texts |= {"sources": source_digest(), **dict(versions())}
    except RuntimeError as error:
        raise Unhashable(str(error)) from error
    signature = signature_text(graph)
    return make_key([(name, text.encode()) for name, text in texts.items()], signature.encode())
