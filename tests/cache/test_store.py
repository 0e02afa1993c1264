"""The store: what is put is got, under names that follow the documented layout."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_compile.cache.layout import directory_name, entry_path
from neuron_compile.cache.store import Hit, Miss, Store
from neuron_compile.errors import NeffTargetError
from tests.cache.entries import TARGET, check, entry_bytes, key_of, store_at

KEY = key_of("the graph")


def test_what_is_put_is_got(tmp_path):
    store = store_at(tmp_path)
    assert store.get(KEY) == Miss("absent")
    assert store.put(KEY, entry_bytes(KEY, "x"))
    found = store.get(KEY)
    assert isinstance(found, Hit)
    assert found.data == entry_bytes(KEY, "x")
    assert found.checked.payload == "x"
    assert found.path == store.path(KEY)


def test_the_layout_is_the_documented_one(tmp_path):
    store = store_at(tmp_path)
    store.put(KEY, entry_bytes(KEY, "x"))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    graph, shape = KEY.graph_hash, KEY.shape_signature
    assert files == [tmp_path / "v1" / TARGET / graph[:2] / graph / f"{shape}.neff"]


def test_t143_another_shape_of_the_same_graph_misses_and_lies_beside(tmp_path):
    store = store_at(tmp_path)
    other = key_of("the graph", "input 0: float32[3]")
    store.put(KEY, entry_bytes(KEY, "x"))
    assert store.get(other) == Miss("absent")
    store.put(other, entry_bytes(other, "y"))
    assert store.path(other).parent == store.path(KEY).parent
    assert store.get(KEY).checked.payload == "x"


def test_targets_do_not_share_entries(tmp_path):
    store_at(tmp_path, "x86-64-v3").put(KEY, entry_bytes(KEY, "x"))
    assert store_at(tmp_path, "aarch64").get(KEY) == Miss("absent")


def test_the_last_writer_wins(tmp_path):
    store = store_at(tmp_path)
    for payload in "ab":
        assert store.put(KEY, entry_bytes(KEY, payload))
    assert store.get(KEY).checked.payload == "b"


def test_without_provenance_the_check_alone_decides(tmp_path):
    store = Store(tmp_path, TARGET, check)
    store.put(KEY, entry_bytes(key_of("other"), "x"))
    assert isinstance(store.get(KEY), Hit)


def test_an_entry_for_another_cpu_stays_for_those_who_can_use_it(tmp_path, caplog):
    def refuse(data: bytes) -> None:
        raise NeffTargetError("needs AVX-512")

    store_at(tmp_path).put(KEY, entry_bytes(KEY, "x"))
    found = Store(tmp_path, TARGET, refuse).get(KEY)
    assert found == Miss("foreign", "needs AVX-512")
    assert isinstance(store_at(tmp_path).get(KEY), Hit)
    assert len(caplog.records) == 1


def test_a_hit_counts_as_use_without_touching_the_content(tmp_path):
    store = store_at(tmp_path)
    store.put(KEY, entry_bytes(KEY, "x"))
    os.utime(store.path(KEY), (1, 1))
    assert isinstance(store.get(KEY), Hit)
    renewed = store.path(KEY).stat().st_mtime
    assert time.time() - renewed < 60
    store.get(KEY)
    assert store.path(KEY).stat().st_mtime == renewed  # not at each hit


def test_a_look_without_a_hit_changes_nothing(tmp_path, caplog):
    store = store_at(tmp_path)
    store.put(KEY, b"damaged")
    before = os.stat(store.path(KEY))
    assert store.peek(store.path(KEY)).reason == "damaged"
    after = os.stat(store.path(KEY))
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert caplog.records == []


def test_relative_roots_work_after_a_change_of_directory_only_if_absolute(tmp_path, monkeypatch):
    """T136: the working directory has no part in it once the root is absolute."""
    store = store_at(tmp_path / "cache")
    store.put(KEY, entry_bytes(KEY, "x"))
    monkeypatch.chdir(tmp_path)
    assert isinstance(store.get(KEY), Hit)
    assert isinstance(store_at(Path("cache")).get(KEY), Hit)


@given(st.text(max_size=300))
def test_a_target_is_one_path_component(target):
    name = directory_name(target)
    assert "/" not in name
    assert name.strip(".")
    assert len(name) <= 108
    assert directory_name(name) == name
    assert entry_path(Path("root"), target, KEY).parts[:3] == ("root", "v1", name)


@pytest.mark.parametrize("target", ["x86-64-v4", "x86-64-v3", "aarch64", "x86-64-v4+amx_bf16"])
def test_real_targets_are_kept_as_they_are(target):
    assert directory_name(target) == target
