"""Compile once: look up, else compile under the lock and publish.

In: a store, a key and a way to compile. Out: the bytes, and where they came from. Invariants: the
caller gets bytes or the compiler's own exception; nothing of the cache's making raises, and nothing
at all after publishing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from neuron_compile.cache.key import Key
from neuron_compile.cache.lock import LockState
from neuron_compile.cache.store import Hit, Miss, Store

Checked = TypeVar("Checked")


@dataclass(frozen=True, slots=True)
class Built:
    """`miss` is why it was compiled; `stored` whether other processes will find it."""

    data: bytes
    miss: Miss
    stored: bool


def get_or_build(
    store: Store[Checked], key: Key, build: Callable[[], bytes], *, lock_timeout: float
) -> Hit[Checked] | Built:
    """The entry of `key`, compiled by `build` if it is not there and no other process brings it."""
    miss = store.get(key)
    if isinstance(miss, Hit):
        return miss
    with store.lock(key, lock_timeout) as state:
        if state in (LockState.HELD, LockState.PUBLISHED):
            # Between our look and the lock, or while we waited, another process may have published.
            again = store.get(key)
            if isinstance(again, Hit):
                return again
        data = build()
        return Built(data, miss, stored=store.put(key, data))
