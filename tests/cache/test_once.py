"""Compile once: threads share one compile, failures of a compile stay with who made it."""

from __future__ import annotations

import threading
import time

import pytest

from neuron_compile.cache.once import Built, get_or_build
from neuron_compile.cache.store import Hit, Miss
from tests.cache.entries import entry_bytes, key_of, store_at

KEY = key_of("the graph")
DATA = entry_bytes(KEY, "compiled")


def forbidden() -> bytes:
    raise AssertionError("compiled although it is in the cache")


def test_a_miss_compiles_and_says_why_and_a_hit_does_not(tmp_path):
    store = store_at(tmp_path)
    first = get_or_build(store, KEY, lambda: DATA, lock_timeout=1)
    assert first == Built(DATA, Miss("absent"), stored=True)
    second = get_or_build(store, KEY, forbidden, lock_timeout=1)
    assert isinstance(second, Hit)
    assert second.data == DATA


def test_a_damaged_entry_is_compiled_anew(tmp_path):
    store = store_at(tmp_path)
    store.put(KEY, DATA[:-1])
    built = get_or_build(store, KEY, lambda: DATA, lock_timeout=1)
    assert built == Built(DATA, Miss("damaged", "the checksum is wrong"), stored=True)
    assert isinstance(get_or_build(store, KEY, forbidden, lock_timeout=1), Hit)


def test_threads_share_one_compile(tmp_path):
    store, builds, results = store_at(tmp_path), [], []

    def build() -> bytes:
        builds.append(threading.get_ident())
        time.sleep(0.2)
        return DATA

    def work() -> None:
        results.append(get_or_build(store, KEY, build, lock_timeout=30).data)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == [DATA] * 8
    assert len(builds) == 1


def test_a_compile_that_fails_leaves_nothing_behind_and_the_next_one_may_try(tmp_path):
    store = store_at(tmp_path)

    def fail() -> bytes:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        get_or_build(store, KEY, fail, lock_timeout=1)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    began = time.monotonic()
    assert isinstance(get_or_build(store, KEY, lambda: DATA, lock_timeout=30), Built)
    assert time.monotonic() - began < 5


def test_a_damaged_entry_that_cannot_be_set_aside_does_not_end_the_wait(tmp_path, monkeypatch):
    """Else each waiting process would take the damaged entry for news and compile as well."""
    from neuron_compile.cache import store as store_module

    store = store_at(tmp_path)
    store.put(KEY, b"damaged")
    monkeypatch.setattr(store_module, "_quarantine", lambda *_: None)
    builds = []

    def build() -> bytes:
        builds.append(None)
        time.sleep(0.2)
        return DATA

    threads = [
        threading.Thread(target=get_or_build, args=(store, KEY, build), kwargs={"lock_timeout": 30})
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(builds) == 1
