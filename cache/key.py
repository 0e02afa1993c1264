"""The key of a cache entry.

In: named parts (what decides the code) and a shape signature (what the inputs look like). Out: a
`Key` whose two hashes name the entry, and the texts to record inside the entry. Invariant: equal
keys come from equal parts and signatures, whatever their order, process, user, host or time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PART_PREFIX = "key."
SIGNATURE_NAME = "key_signature"

# A part no longer than this that is plain text stands for itself, so that a miss can be explained
# with both values ("torch: 2.13.0 -> 2.14.0") and not only with "differs".
_LONGEST_PLAIN = 64


@dataclass(frozen=True, slots=True)
class Key:
    """`parts` is sorted by name: (name, digest). Both hashes equal: the same entry.

    A digest is 64 hexadecimal digits, or `=` and the part itself where that is short plain text.
    `signature` is the text behind `shape_signature`: one `name: value` line for each thing that
    depends on shapes.
    """

    parts: tuple[tuple[str, str], ...]
    signature: str
    graph_hash: str
    shape_signature: str

    def provenance(self) -> dict[str, str]:
        """What an entry must record of its key; `recorded_key` makes the key of it again."""
        return {
            **{PART_PREFIX + name: digest for name, digest in self.parts},
            SIGNATURE_NAME: self.signature,
        }


def make_key(parts: Sequence[tuple[str, bytes]], signature: bytes) -> Key:
    """The key of these parts, in any order, and of this signature (UTF-8 text).

    Raises ValueError for two parts of one name: one of them would be lost in the entry's record.
    """
    names = [name for name, _ in parts]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"key parts named more than once: {', '.join(twice)}")
    return _key([(name, _digest(value)) for name, value in parts], signature.decode("utf-8"))


def recorded_key(provenance: Mapping[str, str]) -> Key | None:
    """The key that an entry says it was made for, or None when it records none.

    Nor does it where a text is not UTF-8 (a lone surrogate): no part of any key is such a text.
    """
    signature = provenance.get(SIGNATURE_NAME)
    parts = [
        (name.removeprefix(PART_PREFIX), digest)
        for name, digest in provenance.items()
        if name.startswith(PART_PREFIX)
    ]
    if signature is None or not parts:
        return None
    try:
        return _key(parts, signature)
    except UnicodeEncodeError:
        return None


def _key(parts: list[tuple[str, str]], signature: str) -> Key:
    ordered = tuple(sorted(parts))
    whole = hashlib.sha256()
    for name, digest in ordered:
        # Lengths first: no two lists of parts may read as one text.
        whole.update(f"{len(name)}:{name}{len(digest)}:{digest}".encode())
    return Key(
        parts=ordered,
        signature=signature,
        graph_hash=whole.hexdigest(),
        shape_signature=hashlib.sha256(signature.encode()).hexdigest(),
    )


def _digest(value: bytes) -> str:
    if len(value) <= _LONGEST_PLAIN and value.isascii():
        text = value.decode("ascii")
        if text.isprintable():
            return "=" + text
    return hashlib.sha256(value).hexdigest()
