"""key -> look up -> lower -> passes -> build -> store -> load, with the real stages."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import neuron_compile
from neuron_compile import compiler
from neuron_compile.cache.warn_once import forget_warnings
from neuron_compile.call_plan import OutputRule, plan
from neuron_compile.compiler import Job, compile_only, executable, forget_executables
from neuron_compile.environment import Environment
from neuron_compile.errors import OptionError
from neuron_compile.neff.reader import read
from neuron_compile.neff.writer import write
from neuron_compile.options import Options
from tests.graphs import aten_graph


@pytest.fixture(autouse=True)
def _fresh() -> None:
    forget_executables()
    forget_warnings()
    neuron_compile.reset_stats()


def job(
    root: Path | None = None, *, factor: float = 2.0, size: int = 5, options=None, **environment
) -> Job:
    graph = aten_graph(lambda x: x * factor + 1, torch.ones(size))
    work, _ = plan(graph, [OutputRule()])
    return Job(
        work, "inference", options or Options(), Environment(cache_dir=root, **environment), {}
    )


def counted(*names: str) -> list[int]:
    found = neuron_compile.stats()
    return [found[name] for name in names]


def run(program, size: int = 5) -> torch.Tensor:
    x, y = torch.arange(float(size)), torch.empty(size)
    program.run([x.data_ptr(), y.data_ptr()])
    return y


def test_first_compiled_then_from_memory_then_from_disk(tmp_path: Path) -> None:
    first = executable(job(tmp_path))
    assert torch.equal(run(first), torch.arange(5.0) * 2 + 1)
    assert counted("compiles", "memory_hits", "disk_hits", "disk_misses") == [1, 0, 0, 1]
    assert executable(job(tmp_path)) is first
    assert counted("compiles", "memory_hits", "disk_hits", "disk_misses") == [1, 1, 0, 1]
    forget_executables()
    again = executable(job(tmp_path))
    assert again is not first
    assert torch.equal(run(again), torch.arange(5.0) * 2 + 1)
    assert counted("compiles", "memory_hits", "disk_hits", "disk_misses") == [1, 1, 1, 1]


def test_other_constant_other_size_other_target_are_other_entries(tmp_path: Path) -> None:
    executable(job(tmp_path))
    executable(job(tmp_path, factor=3.0))
    executable(job(tmp_path, size=6))
    executable(job(tmp_path, options=Options(target="x86-64-v3")))
    assert counted("compiles") == [4]
    executable(job(tmp_path, target="x86-64-v3"))
    assert counted("compiles", "memory_hits") == [4, 1]


def test_name_of_the_model_does_not_make_another_entry(tmp_path: Path) -> None:
    executable(job(tmp_path, options=Options(model_name="a")))
    executable(job(tmp_path, options=Options(model_name="b")))
    assert counted("compiles", "memory_hits") == [1, 1]


def test_disabled_cache_writes_nothing(tmp_path: Path) -> None:
    executable(job(tmp_path, disable_cache=True))
    assert counted("compiles", "bypasses", "disk_misses") == [1, 1, 0]
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_hashed_is_compiled_with_a_warning(
    tmp_path: Path, monkeypatch, caplog
) -> None:
    def refuse(*_args, **_kwargs):
        raise compiler.Unhashable("an opaque object")

    monkeypatch.setattr(compiler, "make_graph_key", refuse)
    program = executable(job(tmp_path))
    assert "without the cache: an opaque object" in caplog.text
    assert torch.equal(run(program), torch.arange(5.0) * 2 + 1)
    assert counted("bypasses", "compiles") == [1, 1]
    assert list(tmp_path.iterdir()) == []


def test_threads_that_want_one_graph_compile_it_once(tmp_path: Path) -> None:
    jobs = [job(tmp_path) for _ in range(4)]
    found = []
    threads = [threading.Thread(target=lambda j=j: found.append(executable(j))) for j in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted("compiles", "memory_hits") == [1, 3]
    assert len(set(map(id, found))) == 1


def test_read_only_directory_is_survived(tmp_path: Path, caplog) -> None:
    root = tmp_path / "file-where-the-directory-should-be"
    root.write_text("")
    program = executable(job(root))
    assert torch.equal(run(program), torch.arange(5.0) * 2 + 1)
    assert counted("compiles") == [1]
    assert "compilation goes on without it" in caplog.text


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.cat([x, x]),  # would write past the end of the output
        lambda x: x.double(),
        lambda x: (x + 1, x + 2),
        lambda x: x.sum(),
    ],
)
def test_entry_of_other_buffers_is_compiled_again_whatever_key_it_records(
    tmp_path: Path, caplog, function
) -> None:
    executable(job(tmp_path / "cache"))
    [entry] = (tmp_path / "cache").rglob("*.neff")
    right = read(entry.read_bytes())
    graph = aten_graph(function, torch.ones(5))
    count = len(graph.graph.output_node().args[0])
    work, _ = plan(graph, [OutputRule()] * count)
    other = executable(
        Job(work, "inference", Options(), Environment(cache_dir=tmp_path / "other"), {})
    )
    entry.write_bytes(write(replace(other.neff, provenance=right.provenance)))
    forget_executables()
    neuron_compile.reset_stats()
    assert torch.equal(run(executable(job(tmp_path / "cache"))), torch.arange(5.0) * 2 + 1)
    assert counted("compiles", "disk_hits") == [1, 0]
    assert sum("not one of this graph" in record.getMessage() for record in caplog.records) == 1
    forget_executables()
    executable(job(tmp_path / "cache"))
    assert counted("compiles", "disk_hits") == [1, 1]


def test_damaged_entry_is_compiled_again(tmp_path: Path, caplog) -> None:
    executable(job(tmp_path))
    [entry] = tmp_path.rglob("*.neff")
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 1
    entry.write_bytes(data)
    forget_executables()
    program = executable(job(tmp_path))
    assert "ignoring the cached NEFF" in caplog.text
    assert torch.equal(run(program), torch.arange(5.0) * 2 + 1)
    assert counted("compiles", "disk_hits") == [2, 0]


def test_failed_compilation_leaves_nothing_and_blocks_nobody(tmp_path: Path, monkeypatch) -> None:
    import neuron_compile.neff.build as build

    def fail(*_args, **_kwargs):
        raise neuron_compile.CodegenError("no code today")

    with monkeypatch.context() as patch:
        patch.setattr(build, "build", fail)
        with pytest.raises(neuron_compile.CodegenError, match="no code today"):
            executable(job(tmp_path))
    assert list(tmp_path.rglob("*.neff")) == []
    assert torch.equal(run(executable(job(tmp_path))), torch.arange(5.0) * 2 + 1)


def test_unknown_target_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="x86-64-v9"):
        executable(job(tmp_path, options=Options(target="x86-64-v9")))


@pytest.mark.parametrize("compile_job", [executable, compile_only])
def test_a_target_of_another_family_is_refused_before_anything_is_lowered(
    tmp_path: Path, compile_job, monkeypatch
) -> None:
    from neuron_compile.neff import target

    monkeypatch.setattr(target, "_host", lambda: ("x86_64", frozenset()))
    with pytest.raises(OptionError, match="cannot compile for target 'aarch64'"):
        compile_job(job(tmp_path, options=Options(target="aarch64")))
    assert counted("compiles", "disk_misses") == [0, 0]


def test_code_for_another_cpu_can_be_compiled_but_not_loaded(tmp_path: Path, monkeypatch) -> None:
    from neuron_compile.neff import target

    monkeypatch.setattr(target.Target, "missing_on_host", lambda _self: ("avx9",))
    compile_only(job(tmp_path))
    assert len(list(tmp_path.rglob("*.neff"))) == 1
    with pytest.raises(neuron_compile.NeffTargetError, match="avx9"):
        executable(job(tmp_path))


def test_memory_keeps_the_most_recent(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(compiler, "_KEPT", 1)
    executable(job(tmp_path))
    executable(job(tmp_path, factor=3.0))
    executable(job(tmp_path))
    assert counted("compiles", "memory_hits", "disk_hits") == [2, 0, 1]


def test_every_stage_is_timed(tmp_path: Path) -> None:
    executable(job(tmp_path))
    assert all(seconds > 0 for seconds in neuron_compile.stats()["seconds"].values())


def test_log_says_why_an_entry_was_missed(tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.INFO, "neuron_compile.cache")
    executable(job(tmp_path))
    assert "has no entries" in caplog.text
    executable(job(tmp_path, size=6))
    assert "for 1 other shape signature" in caplog.text


def test_artifacts_of_a_compilation(tmp_path: Path) -> None:
    wanted = job(
        tmp_path / "cache", options=Options(model_name="my model"), debug_dir=tmp_path / "debug"
    )
    executable(wanted)
    files = sorted(p.relative_to(tmp_path / "debug") for p in (tmp_path / "debug").rglob("*.*"))
    folders = [str(p.parent) for p in files]
    assert folders == ["fx_graphs", "kernels", "kernels", "neff", "stablehlo", "stablehlo"]
    assert all(p.name.startswith("my_model_inference_") for p in files)
    kernel, run, after, before = (
        (tmp_path / "debug" / p).read_text() for p in files if "mlir" in p.name
    )
    assert "@loop_0(" in kernel
    assert "llvm.func @run(" in run
    assert "llvm.call @loop_0__all(" in run
    assert "stablehlo.multiply" in before
    assert "neuron.kind" in after
    assert str(tmp_path) not in before


def test_nothing_is_written_without_a_debug_directory(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    executable(job(tmp_path / "cache"))
    assert [p.name for p in tmp_path.iterdir()] == ["cache"]


_PROCESS = """
import sys, torch, neuron_compile
f = torch.compile(lambda x: (x * 2).relu() + 1, backend="neuron")
x = torch.linspace(-1, 1, 7)
torch.testing.assert_close(f(x), (x * 2).relu() + 1)
print(neuron_compile.stats()["compiles"], neuron_compile.stats()["disk_hits"])
print(sorted(n for n in sys.modules if n.split(".")[0] == "torch_mlir"
             or n.startswith(("neuron_compile.neff.codegen", "neuron_compile.passes"))))
"""


def test_second_process_hits_and_imports_neither_mlir_nor_codegen(tmp_path: Path) -> None:
    def start() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", _PROCESS],
            env={**os.environ, "TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    counts, loaded = start()
    assert counts == "1 0"
    assert "torch_mlir.ir" in loaded
    counts, loaded = start()
    assert counts == "0 1"
    assert loaded == "[]"


def test_compile_only_runs_nothing_and_says_so_once(monkeypatch, tmp_path: Path, caplog) -> None:
    forget_warnings()
    monkeypatch.setenv("TORCH_NEURONX_COMPILE_ONLY", "1")
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(tmp_path))
    compiled = torch.compile(lambda x: (x + 1).t(), backend="neuron", dynamic=False)
    compiled(torch.ones(4, 3))
    y = compiled(torch.ones(2, 3))
    assert y.shape == (3, 2)
    assert y.count_nonzero() == 0
    assert counted("compiles", "launches") == [2, 0]
    (warning,) = [r.getMessage() for r in caplog.records if r.name == "neuron_compile.cache"]
    assert "calls compute nothing and return zeros" in warning
    assert "unset TORCH_NEURONX_COMPILE_ONLY" in warning
    assert "torch._dynamo.reset()" in warning
    monkeypatch.delenv("TORCH_NEURONX_COMPILE_ONLY")
    torch._dynamo.reset()
    assert torch.equal(compiled(torch.ones(2, 3)), torch.full((3, 2), 2.0))
