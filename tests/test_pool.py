"""The pool: memory comes back when, and only when, nobody can see it any more."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import subprocess
import sys
import threading
import time

import pytest
import torch

from neuron_compile import pool
from neuron_compile.errors import ExecutionError
from neuron_compile.pool import Pool

MIB = 1 << 20


@pytest.fixture
def small() -> Pool:
    return Pool(limit=64 * MIB, idle_seconds=3600)


def tensor(p: Pool, nbytes: int = MIB) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(p.take(nbytes), 0, (nbytes,), (1,))


def test_memory_of_a_dead_tensor_is_used_again(small: Pool) -> None:
    first = tensor(small)
    address = first.data_ptr()
    del first
    assert tensor(small).data_ptr() == address
    assert small.held() == MIB


def test_living_tensors_never_share_memory(small: Pool) -> None:
    living = [tensor(small) for _ in range(20)]
    assert len({t.data_ptr() for t in living}) == 20


def test_another_size_is_another_block(small: Pool) -> None:
    a, b = tensor(small, MIB), tensor(small, 2 * MIB)
    assert a.untyped_storage().nbytes() == MIB
    assert b.untyped_storage().nbytes() == 2 * MIB


@pytest.mark.parametrize(
    "keep",
    [
        lambda t: t[5:7],
        lambda t: t.view(torch.int32),
        lambda t: t.detach(),
        lambda t: t.numpy(),
        lambda t: t.untyped_storage(),
        lambda t: memoryview(t.numpy()),
        lambda t: torch.utils.dlpack.to_dlpack(t),
        lambda t: torch.from_numpy(t.numpy()),
        lambda t: {"deep": [t]},
    ],
    ids=[
        "slice",
        "view",
        "detach",
        "numpy",
        "storage",
        "memoryview",
        "dlpack",
        "numpy-roundtrip",
        "container",
    ],
)
def test_whatever_still_shows_the_memory_keeps_it(small: Pool, keep) -> None:
    first = tensor(small)
    address = first.data_ptr()
    kept = keep(first)
    del first
    gc.collect()
    assert tensor(small).data_ptr() != address
    del kept
    gc.collect()
    again = [tensor(small) for _ in range(2)]
    assert address in {t.data_ptr() for t in again}


def test_a_saved_tensor_of_autograd_keeps_its_memory(small: Pool) -> None:
    x = torch.ones(MIB // 4, requires_grad=True)
    saved = torch.empty(0).set_(small.take(MIB), 0, (MIB // 4,), (1,)).fill_(3)
    address = saved.data_ptr()
    y = (x * saved).sum()
    del saved
    other = tensor(small)
    assert other.data_ptr() != address
    other.fill_(9)
    y.backward()
    assert x.grad.unique().tolist() == [3.0]


def test_resized_storage_is_not_handed_out(small: Pool) -> None:
    first = tensor(small)
    first.resize_(2 * MIB).fill_(1)
    del first
    second = tensor(small)
    assert second.untyped_storage().nbytes() == MIB
    second.fill_(7)
    assert second.unique().tolist() == [7]


def test_freed_storage_is_not_handed_out(small: Pool) -> None:
    first = tensor(small)
    first.untyped_storage().resize_(0)
    del first
    second = tensor(small).fill_(7)
    assert second.unique().tolist() == [7]


def test_memory_shared_with_other_processes_is_not_handed_out(small: Pool) -> None:
    first = tensor(small)
    first.share_memory_()
    shared = first.data_ptr()
    del first
    assert tensor(small).data_ptr() != shared


def test_lazy_clone_keeps_its_values(small: Pool) -> None:
    first = tensor(small).fill_(3)
    clone = torch._lazy_clone(first)
    del first
    tensor(small).fill_(9)
    assert clone.unique().tolist() == [3]


def test_copies_and_pickles_are_independent(small: Pool) -> None:
    first = tensor(small).fill_(3)
    buffer = io.BytesIO()
    torch.save(first, buffer)
    buffer.seek(0)
    copies = [copy.deepcopy(first), pickle.loads(pickle.dumps(first)), torch.load(buffer)]
    del first
    tensor(small).fill_(9)
    for c in copies:
        assert c.unique().tolist() == [3]


def test_version_counters_start_anew(small: Pool) -> None:
    first = tensor(small)
    fresh = first._version
    first.add_(1)
    del first
    assert tensor(small)._version == fresh


def test_memory_is_aligned(small: Pool) -> None:
    assert tensor(small).data_ptr() % 64 == 0


def test_trim_frees_what_is_unused_and_nothing_else(small: Pool) -> None:
    kept = tensor(small).fill_(5)
    dead = [tensor(small) for _ in range(3)]
    del dead
    assert small.trim() == 3 * MIB
    assert small.held() == MIB
    assert kept.unique().tolist() == [5]


def test_the_limit_holds(small: Pool) -> None:
    living = [tensor(small, 10 * MIB) for _ in range(8)]
    assert small.held() <= small.limit
    assert len({t.data_ptr() for t in living}) == 8
    del living
    tensor(small, 60 * MIB)  # makes room by giving the others back
    assert small.held() <= small.limit


def test_limit_is_a_quarter_of_what_the_container_may_use(tmp_path) -> None:
    file = tmp_path / "memory.max"
    file.write_text(f"{400 * MIB}\n")
    assert pool.default_limit(file) == 100 * MIB
    file.write_text("max\n")
    assert pool.default_limit(file) == pool.default_limit(tmp_path / "absent") > 100 * MIB


def test_idle_memory_goes_back_by_itself() -> None:
    p = Pool(limit=64 * MIB, idle_seconds=0.05)
    tensor(p)
    assert p.held() == MIB
    deadline = time.monotonic() + 10
    while p.held() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert p.held() == 0
    assert tensor(p).numel() == MIB  # and the pool goes on working


def test_threads_never_get_the_same_block(small: Pool) -> None:
    clashes = []

    def work(mark: int) -> None:
        for _ in range(200):
            t = tensor(small, 1 << 12)
            t.fill_(mark)
            if t.unique().tolist() != [mark]:
                clashes.append(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not clashes


def test_a_forked_child_starts_with_an_empty_pool() -> None:
    code = """
import os, torch
torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
from neuron_compile.pool import POOL
t = torch.empty(0, dtype=torch.uint8).set_(POOL.take(1 << 20), 0, (1 << 20,), (1,)).fill_(3)
child = os.fork()
if child == 0:
    ok = POOL.held() == 0 and t.sum().item() == 3 << 20
    u = torch.empty(0, dtype=torch.uint8).set_(POOL.take(1 << 20), 0, (1 << 20,), (1,)).fill_(4)
    os._exit(0 if ok and t[0].item() == 3 else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()


def test_without_the_use_count_nothing_is_pooled(small: Pool, monkeypatch) -> None:
    monkeypatch.setattr(pool, "_use_count", None)
    first = tensor(small)
    del first
    assert tensor(small).numel() == MIB
    assert small.held() == 0


def test_memory_that_begins_within_a_cache_line_is_refused() -> None:
    """Large results are stored line by line; torch's own allocator aligns to 64 bytes."""
    pool._demand_alignment(128)
    with pytest.raises(ExecutionError, match="not at a multiple of 64 bytes"):
        pool._demand_alignment(144)
