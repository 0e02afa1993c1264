"""The key of a graph: the same in every process, different for whatever changes the code."""

from __future__ import annotations

import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from neuron_compile import graph_key
from neuron_compile.cache.key import Key
from neuron_compile.graph_key import Unhashable, make_graph_key
from tests.source_tree import ROOT

SQUARE = torch.ones(4, 4)
OTHER = torch.ones(4, 4)  # tracing takes one tensor given twice for one input


def trace(function: Callable[..., Any], *inputs: torch.Tensor) -> torch.fx.GraphModule:
    return make_fx(function, tracing_mode="fake")(*inputs)


def key_of(function: Callable[..., Any], *inputs: torch.Tensor, **changes: Any) -> Key:
    arguments = {"options_in_key": {"a": 1}, "target": "x86-64-v3", "aot": {"kind": "inference"}}
    return make_graph_key(trace(function, *inputs), **{**arguments, **changes})


@pytest.mark.slow
def test_t136_t146_the_same_in_every_process(tmp_path: Path) -> None:
    """Another hash seed, directory, home, user, rank, device and history of the process."""
    home = tmp_path / "home"
    home.mkdir()
    differences: list[tuple[dict[str, str], Path, int]] = [
        ({"PYTHONHASHSEED": "1", "RANK": "0", "LOCAL_RANK": "0"}, ROOT, 0),
        (
            {
                "PYTHONHASHSEED": "2",
                "HOME": str(home),
                "USER": "somebody",
                "LOGNAME": "somebody",
                "RANK": "3",
                "LOCAL_RANK": "3",
                "WORLD_SIZE": "4",
                "CUDA_VISIBLE_DEVICES": "3",
                "TZ": "Asia/Tokyo",
                "LC_ALL": "C",
            },
            tmp_path,
            3,
        ),
    ]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.graph_key_worker", str(history)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        )
        for environ, directory, history in differences
    ]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs[0][1] + outputs[1][1]
    first, second = (json.loads(output) for output, _ in outputs)
    assert first == second
    assert len(first) == 2  # forward and backward
    assert first[0][0] != first[1][0]
    for secret in (str(tmp_path), str(home), "somebody", str(ROOT)):
        assert secret not in outputs[1][0]


DIFFERENT: dict[str, list[Callable[..., Any]]] = {
    "t142 the dimension of a sum": [lambda x, y: x.sum(0), lambda x, y: x.sum(1)],
    "t142 the order of operands": [lambda x, y: x - y, lambda x, y: y - x],
    "operators": [lambda x, y: x + y, lambda x, y: x * y, lambda x, y: torch.maximum(x, y)],
    "which input": [lambda x, y: x.exp(), lambda x, y: y.exp()],
    "scalars": [lambda x, y: x * 2.0, lambda x, y: x * 3.0, lambda x, y: x * 2.0000000000000004],
    "types of scalars": [lambda x, y: x * 1, lambda x, y: x * 1.0, lambda x, y: x * True],
    "signs of zero": [lambda x, y: x + 0.0, lambda x, y: x + -0.0],
    "infinities": [
        lambda x, y: x.clamp(max=float("inf")),
        lambda x, y: x.clamp(min=float("-inf")),
        lambda x, y: x.clamp(min=float("nan")),
    ],
    "dtypes": [lambda x, y: x.to(torch.bfloat16), lambda x, y: x.to(torch.float16)],
    "keywords": [lambda x, y: torch.add(x, y), lambda x, y: torch.add(x, y, alpha=2)],
    "order of outputs": [lambda x, y: (x + 1, y + 1), lambda x, y: (y + 1, x + 1)],
    "number of outputs": [lambda x, y: (x + 1,), lambda x, y: (x + 1, x + 1)],
    "structure of outputs": [lambda x, y: (x + 1, y + 1), lambda x, y: (x + 1, None)],
    "constants": [
        lambda x, y: x + torch.tensor([1.0, 2.0, 3.0, 4.0]),
        lambda x, y: x + torch.tensor([1.0, 2.0, 3.0, 5.0]),
        lambda x, y: x + torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64),
    ],
    "memory formats": [
        lambda x, y: x[None, None].clone(memory_format=torch.channels_last),
        lambda x, y: x[None, None].clone(memory_format=torch.contiguous_format),
    ],
    "slices": [lambda x, y: x[1:3], lambda x, y: x[0:2], lambda x, y: x[::2]],
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_whatever_changes_the_code_changes_the_key(name: str) -> None:
    functions = DIFFERENT[name]
    keys = [key_of(function, SQUARE, OTHER) for function in functions]
    assert len({key.graph_hash for key in keys}) == len(functions)
    again = [key_of(function, SQUARE, OTHER) for function in functions]
    assert [key.graph_hash for key in again] == [key.graph_hash for key in keys]


def test_t140_t127_options_target_and_facts_are_in_the_key() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    base = key_of(function, SQUARE)
    changed = [
        key_of(function, SQUARE, options_in_key={"a": 2}),
        key_of(function, SQUARE, options_in_key={"a": 1.0}),
        key_of(function, SQUARE, options_in_key={"a": True}),
        key_of(function, SQUARE, options_in_key={"b": 1}),
        key_of(function, SQUARE, options_in_key={}),
        key_of(function, SQUARE, target="x86-64-v4"),
        key_of(function, SQUARE, aot={"kind": "forward"}),
        key_of(function, SQUARE, aot={"kind": "inference", "mutated": [0]}),
        key_of(function, SQUARE, aot={"kind": "inference", "mutated": [1]}),
    ]
    hashes = [base.graph_hash, *(key.graph_hash for key in changed)]
    assert len(set(hashes)) == len(hashes)
    assert {key.shape_signature for key in changed} == {base.shape_signature}
    assert key_of(function, SQUARE) == base


def test_t140_the_default_dtype_is_in_the_key() -> None:
    before = torch.get_default_dtype()
    graph = trace(lambda x: x + 1, SQUARE)
    arguments: dict[str, Any] = {"options_in_key": {}, "target": "t", "aot": {}}
    single = make_graph_key(graph, **arguments)
    try:
        torch.set_default_dtype(torch.float64)
        double = make_graph_key(graph, **arguments)
    finally:
        torch.set_default_dtype(before)
    assert single.graph_hash != double.graph_hash


def test_the_order_of_options_does_not_matter() -> None:
    one = key_of(lambda x: x + 1, SQUARE, options_in_key={"a": 1, "b": 2})
    two = key_of(lambda x: x + 1, SQUARE, options_in_key={"b": 2, "a": 1})
    assert one == two


def test_versions_and_sources_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    base = key_of(lambda x: x + 1, SQUARE)
    assert dict(base.parts)["torch"] == "=" + importlib.metadata.version("torch")
    assert {"graph", "sources", "target", "torch", "torch-mlir"} <= {name for name, _ in base.parts}
    monkeypatch.setattr(graph_key, "source_digest", lambda: "other sources")
    other_sources = key_of(lambda x: x + 1, SQUARE)
    monkeypatch.setattr(graph_key, "versions", lambda: (("torch", "2.99"), ("torch-mlir", "1")))
    other_torch = key_of(lambda x: x + 1, SQUARE)
    assert len({base.graph_hash, other_sources.graph_hash, other_torch.graph_hash}) == 3


def test_without_a_known_compiler_version_the_cache_is_bypassed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown() -> tuple[tuple[str, str], ...]:
        raise RuntimeError("the version of torch-mlir is unknown")

    monkeypatch.setattr(graph_key, "versions", unknown)
    with pytest.raises(Unhashable, match="version of torch-mlir"):
        key_of(lambda x: x + 1, SQUARE)


def test_t143_shapes_are_in_the_signature() -> None:
    keys = [key_of(lambda x: x.exp(), torch.ones(n, 3)) for n in (2, 4)]
    assert keys[0].graph_hash == keys[1].graph_hash
    assert keys[0].shape_signature != keys[1].shape_signature


def test_names_and_addresses_do_not_matter() -> None:
    graph = trace(lambda x, y: (x + y).relu() * torch.tensor([1.0, 2.0, 3.0, 4.0]), SQUARE, OTHER)
    arguments: dict[str, Any] = {"options_in_key": {}, "target": "t", "aot": {}}
    before = make_graph_key(graph, **arguments)
    for number, node in enumerate(graph.graph.nodes):
        node.name = f"renamed_{number * 7}"
        node.meta["stack_trace"] = f'File "/elsewhere/{number}.py", line {number}, in f'
    assert make_graph_key(graph, **arguments) == before


def test_opaque_options_are_refused() -> None:
    with pytest.raises(Unhashable, match="pathlib"):
        key_of(lambda x: x + 1, SQUARE, options_in_key={"a": Path("somewhere")})


def test_it_is_fast() -> None:
    """1000 nodes in less than 20 ms; the median, as the machine may be busy with something else."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(250):
            x = torch.clamp(x.transpose(0, 1) * y + 1.5, min=0.0)
        return x

    graph = trace(function, SQUARE, OTHER)
    count = len(graph.graph.nodes)
    assert count > 1000
    seconds = []
    for _ in range(9):
        began = time.process_time()
        make_graph_key(graph, options_in_key={}, target="t", aot={})
        seconds.append(time.process_time() - began)
    assert statistics.median(seconds) * 1000 / count < 0.020
