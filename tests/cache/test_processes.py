"""The cache between processes: the T-cases of concurrency and distribution, with real processes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from neuron_compile.cache.layout import walk
from neuron_compile.cache.lock import LockState
from neuron_compile.cache.once import Built, get_or_build
from neuron_compile.cache.publish import ORPHAN_SECONDS
from neuron_compile.cache.store import Hit, Miss
from neuron_compile.cache.upkeep import entries, usage
from tests.cache.entries import entry_bytes, store_at
from tests.cache.processes import finish, run, start
from tests.cache.worker import KEY


def kinds(root: Path) -> list[str]:
    return sorted(found.kind for found in walk(root))


def test_t128_a_killed_writer_leaves_nothing_that_a_reader_takes_for_an_entry(tmp_path):
    assert run("die_before_rename", tmp_path).code == -signal.SIGKILL
    assert kinds(tmp_path) == ["temporary"]
    assert list(entries(tmp_path)) == []
    store = store_at(tmp_path)
    assert store.get(KEY) == Miss("absent")
    # The next writer is not disturbed by it (T135), and removes it once it is old.
    assert store.put(KEY, entry_bytes(KEY, "second"))
    assert kinds(tmp_path) == ["entry", "temporary"]
    orphan = next(found.path for found in walk(tmp_path) if found.kind == "temporary")
    old = time.time() - ORPHAN_SECONDS - 60
    os.utime(orphan, (old, old))
    assert store.put(KEY, entry_bytes(KEY, "third"))
    assert kinds(tmp_path) == ["entry"]


def test_t129_t130_readers_see_whole_entries_while_others_write_and_clear(tmp_path):
    root, stop = tmp_path / "cache", tmp_path / "stop"
    store_at(root).put(KEY, entry_bytes(KEY, "a" * 20_000))
    others = [start("read_on", root, stop), start("clear_on", root, stop)]
    writers = [start("write_on", root, letter * 20_000, 300) for letter in "ab"]
    written = [finish(writer) for writer in writers]
    stop.touch()
    reader, cleaner = (finish(other) for other in others)
    assert [answer.code for answer in (*written, reader, cleaner)] == [0, 0, 0, 0], reader.log
    # A writer may lose its directory to the cleaner again and again; it says so, and goes on.
    assert all(answer.value["stored"] > 250 for answer in written)
    assert cleaner.value["removed"] > 0
    assert set(reader.value) <= {"a" * 20_000, "b" * 20_000, "absent"}
    assert len(reader.value) >= 2
    assert reader.warnings == []


def test_t135_a_killed_compiler_does_not_hold_up_the_next(tmp_path):
    assert run("die_while_compiling", tmp_path, "log").code == -signal.SIGKILL
    assert list(tmp_path.rglob("*.lock"))
    began = time.monotonic()
    built = get_or_build(
        store_at(tmp_path), KEY, lambda: entry_bytes(KEY, "mine"), lock_timeout=60.0
    )
    assert time.monotonic() - began < 5
    assert isinstance(built, Built)
    assert built.stored
    assert list(tmp_path.rglob("*.lock")) == []


def test_a_compiler_that_hangs_is_waited_for_no_longer_than_the_limit(tmp_path, caplog):
    root, marker = tmp_path / "cache", tmp_path / "marker"
    hanging = start("hang_while_compiling", root, marker)
    try:
        deadline = time.monotonic() + 30
        while not marker.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        began = time.monotonic()
        built = get_or_build(
            store_at(root), KEY, lambda: entry_bytes(KEY, "mine"), lock_timeout=0.3
        )
        assert 0.25 < time.monotonic() - began < 5
    finally:
        hanging.kill()
        hanging.communicate()
    assert isinstance(built, Built)
    assert isinstance(store_at(root).get(KEY), Hit)
    assert [record.getMessage() for record in caplog.records] != []
    assert "LOCK_TIMEOUT" in caplog.text


@pytest.mark.parametrize("locks", ["below the root", "on this host"])
def test_t148_processes_that_start_together_compile_once(tmp_path, locks):
    root, log = tmp_path / "cache", tmp_path / "log"
    lock_root = tmp_path / "locks" if locks == "on this host" else ""
    workers = [start("build_once", root, log, 0.5, lock_root) for _ in range(6)]
    time.sleep(0.5)
    (tmp_path / "log.go").touch()
    answers = [finish(worker) for worker in workers]
    assert [answer.code for answer in answers] == [0] * 6, answers
    assert sum(answer.value["built"] for answer in answers) == 1
    assert len(log.read_text().splitlines()) == 1
    # Nobody waits much longer than the compile takes: waiting is no queue.
    assert max(answer.value["seconds"] for answer in answers) < 2.5
    assert all(answer.warnings == [] for answer in answers)
    assert (tmp_path / "locks").exists() == (locks == "on this host")
    assert usage(root).entries == 1


def test_t147_no_directory_means_no_error_when_all_create_it_at_once(tmp_path):
    root = tmp_path / "a" / "b" / "cache"
    writers = [start("write_on", root, letter, 50) for letter in "abcd"]
    answers = [finish(writer) for writer in writers]
    assert [answer.value for answer in answers] == [{"stored": 50}] * 4
    assert kinds(root) == ["entry"]


def test_t147_an_entry_is_readable_as_the_umask_says_and_never_writable_by_others(tmp_path):
    before = os.umask(0o000)
    try:
        store_at(tmp_path).put(KEY, entry_bytes(KEY, "x"))
    finally:
        os.umask(before)
    assert store_at(tmp_path).path(KEY).stat().st_mode & 0o777 == 0o644


def test_children_forked_from_one_process_compile_once(tmp_path):
    answer = run("fork_and_compile", tmp_path / "cache", tmp_path / "log", 4)
    assert answer.value == {"statuses": [0] * 4}, answer.log
    assert len((tmp_path / "log").read_text().splitlines()) == 1


def test_a_child_that_leaves_the_locked_block_does_not_free_its_parents_lock(tmp_path):
    answer = run("fork_while_holding", tmp_path)
    assert answer.value is not None, answer.log
    assert answer.value["child"] == 0
    expected = [LockState.HELD, LockState.TIMED_OUT, LockState.HELD]
    assert answer.value["states"] == [state.value for state in expected]
