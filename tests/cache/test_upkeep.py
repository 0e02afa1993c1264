"""Looking after a cache: only our files are touched, the most recently used stay."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from neuron_compile.cache import upkeep
from neuron_compile.cache.layout import lock_path, quarantine_path, temporary_path
from neuron_compile.cache.store import Hit
from neuron_compile.cache.upkeep import Usage
from tests.cache.entries import TARGET, Entry, entry_bytes, key_of, store_at

DAY = 24 * 3600.0


def fill(root: Path, *names: str) -> list[Path]:
    """Entries of 1000 bytes or so, the first the longest unused, a day apart."""
    store, paths = store_at(root), []
    for age, name in enumerate(reversed(names)):
        key = key_of(name)
        store.put(key, entry_bytes(key, name * 600))
        when = time.time() - age * DAY
        os.utime(store.path(key), (when, when))
        paths.append(store.path(key))
    return paths[::-1]


def leave_rubbish(root: Path, age: float) -> list[Path]:
    entry = store_at(root).path(key_of("rubbish"))
    entry.parent.mkdir(parents=True)
    paths = [temporary_path(entry), quarantine_path(entry)]
    for path in paths:
        path.write_text("rubbish")
        os.utime(path, (time.time() - age, time.time() - age))
    return paths


def test_an_empty_or_missing_cache_is_no_error(tmp_path):
    missing = tmp_path / "missing"
    assert upkeep.usage(missing) == Usage(0, 0, (), 0, 0, 0)
    assert list(upkeep.entries(missing)) == []
    assert upkeep.verify(store_at(missing)) == []
    assert upkeep.clear(missing) == upkeep.Removal((), 0, ())
    assert upkeep.gc(missing, max_bytes=0) == upkeep.Removal((), 0, ())
    assert not missing.exists()


def test_usage_counts_entries_and_what_is_no_entry(tmp_path):
    paths = fill(tmp_path, "a", "b")
    key = key_of("c")
    store_at(tmp_path, "aarch64").put(key, entry_bytes(key, "c"))
    leave_rubbish(tmp_path, 0)
    found = upkeep.usage(tmp_path)
    sizes = sum(path.stat().st_size for path in tmp_path.rglob("*.neff"))
    assert found == Usage(3, sizes, (("aarch64", 1), (TARGET, 2)), 1, 1, 14)
    assert {entry.path for entry in upkeep.entries(tmp_path)} > set(paths)


def test_verify_names_the_damaged_the_misplaced_and_nothing_else(tmp_path):
    good, damaged, moved = fill(tmp_path, "a", "b", "c")
    damaged.write_bytes(b"x")
    elsewhere = moved.with_name("0" * 64 + ".neff")
    moved.rename(elsewhere)
    leave_rubbish(tmp_path, 0)
    faults = {fault.path: fault.detail for fault in upkeep.verify(store_at(tmp_path))}
    assert set(faults) == {damaged, elsewhere}
    assert "checksum" in faults[damaged]
    assert "another graph" in faults[elsewhere]
    assert good.exists()
    assert damaged.exists()


def test_delete_takes_the_beginning_of_a_hash(tmp_path):
    first, second = fill(tmp_path, "a", "b")
    graph = first.parent.name
    removal = upkeep.delete(tmp_path, graph[:12])
    assert removal.removed == (first,)
    assert removal.freed_bytes > 600
    assert second.exists()
    with pytest.raises(ValueError, match="clear"):
        upkeep.delete(tmp_path, "")


def test_clear_removes_all_of_ours_and_nothing_else(tmp_path):
    fill(tmp_path, "a", "b", "c")
    leave_rubbish(tmp_path, 0)
    theirs = [
        tmp_path / "notes.txt",
        tmp_path / "v1" / "notes.txt",
        tmp_path / "v1" / TARGET / "ab" / "notes.neff",
        tmp_path / "v2" / TARGET / "ab" / ("0" * 64) / ("0" * 64 + ".neff"),
    ]
    for path in theirs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("theirs")
    removal = upkeep.clear(tmp_path)
    assert len(removal.removed) == 5
    assert removal.failed == ()
    assert sorted(p for p in tmp_path.rglob("*") if p.is_file()) == sorted(theirs)


@pytest.mark.parametrize("there", [True, False])
def test_clear_does_not_follow_links_out_of_the_cache(tmp_path, there):
    outside = tmp_path / "outside"
    if there:
        outside.write_text("precious")
    store = store_at(tmp_path / "cache")
    entry = store.path(key_of("a"))
    entry.parent.mkdir(parents=True)
    entry.symlink_to(outside)
    assert upkeep.clear(tmp_path / "cache").removed == (entry,)
    assert not there or outside.read_text() == "precious"


def test_empty_directories_go_and_writers_make_them_anew(tmp_path):
    fill(tmp_path, "a")
    upkeep.clear(tmp_path)
    assert list((tmp_path / "v1").iterdir()) == []
    (path,) = fill(tmp_path, "a")
    assert path.exists()


def test_gc_by_size_keeps_the_most_recently_used(tmp_path):
    paths = fill(tmp_path, "a", "b", "c", "d")
    size = paths[0].stat().st_size
    removal = upkeep.gc(tmp_path, max_bytes=2 * size + 1)
    assert set(removal.removed) == set(paths[:2])
    assert removal.freed_bytes == 2 * size
    assert upkeep.gc(tmp_path, max_bytes=2 * size + 1).removed == ()


def test_gc_by_age_counts_a_hit_as_use(tmp_path):
    paths = fill(tmp_path, "a", "b", "c", "d")
    assert isinstance(store_at(tmp_path).get(key_of("a")), Hit)
    removal = upkeep.gc(tmp_path, max_age=1.5 * DAY)
    assert removal.removed == (paths[1],)


def test_gc_without_limits_removes_rubbish_only_and_not_what_is_being_written(tmp_path):
    paths = fill(tmp_path, "a", "b")
    assert upkeep.gc(tmp_path).removed == ()
    old = leave_rubbish(tmp_path, DAY)
    young = temporary_path(paths[0])
    young.write_text("being written")
    assert set(upkeep.gc(tmp_path).removed) == set(old)
    assert young.exists()
    assert all(path.exists() for path in paths)


def test_gc_removes_lock_files_of_killed_processes(tmp_path):
    old = lock_path(tmp_path, TARGET, key_of("a"))
    young = lock_path(tmp_path, TARGET, key_of("b"))
    old.parent.mkdir(parents=True)
    for path, age in ((old, 2 * DAY), (young, 10.0)):
        path.touch()
        os.utime(path, (time.time() - age, time.time() - age))
    upkeep.gc(tmp_path)
    assert not old.exists()
    assert young.exists()


def test_two_cleaners_do_not_disturb_each_other(tmp_path, monkeypatch):
    """All files vanish between the listing and the removal."""
    fill(tmp_path, "a", "b")
    real = upkeep.walk

    def listed_then_gone(root: Path):
        found = list(real(root))
        for item in found:
            item.path.unlink()
        return iter(found)

    monkeypatch.setattr(upkeep, "walk", listed_then_gone)
    assert upkeep.clear(tmp_path) == upkeep.Removal((), 0, ())


def test_entries_are_what_the_store_put(tmp_path):
    (path,) = fill(tmp_path, "a")
    (found,) = upkeep.entries(tmp_path)
    key = key_of("a")
    assert (found.path, found.kind, found.target) == (path, "entry", TARGET)
    assert (found.graph_hash, found.shape_signature) == (key.graph_hash, key.shape_signature)
    assert found.size == path.stat().st_size
    hit = store_at(tmp_path).peek(found.path)
    assert isinstance(hit, Hit)
    assert isinstance(hit.checked, Entry)
