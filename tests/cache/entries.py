"""Entries for the cache's tests: like NEFFs, they carry a checksum and the key they were made for.

In: a key and a payload. Out: bytes; `check` and `provenance_of` are what a store is given.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from neuron_compile.cache.key import Key, make_key
from neuron_compile.cache.notes import Notes
from neuron_compile.cache.store import Store
from neuron_compile.errors import NeffFormatError

TARGET = "x86-64-v3"


@dataclass(frozen=True, slots=True)
class Entry:
    payload: str
    provenance: Mapping[str, str]


def key_of(graph: str, shape: str = "input 0: float32[2]", **parts: str) -> Key:
    named = {"graph": graph, "target": TARGET, **parts}
    return make_key([(name, text.encode()) for name, text in named.items()], shape.encode())


def entry_bytes(key: Key, payload: str, notes: Notes | None = None) -> bytes:
    provenance = key.provenance() | (notes.provenance() if notes else {})
    body = json.dumps({"payload": payload, "provenance": provenance}).encode()
    return hashlib.sha256(body).hexdigest().encode() + body


def check(data: bytes) -> Entry:
    checksum, body = data[:64], data[64:]
    if hashlib.sha256(body).hexdigest().encode() != checksum:
        raise NeffFormatError("the checksum is wrong")
    fields = json.loads(body)
    return Entry(fields["payload"], fields["provenance"])


def provenance_of(entry: Entry) -> Mapping[str, str]:
    return entry.provenance


def store_at(root: Path, target: str = TARGET, lock_root: Path | None = None) -> Store[Entry]:
    return Store(root, target, check, provenance_of=provenance_of, lock_root=lock_root)
