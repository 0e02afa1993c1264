"""The key: equal for equal parts in any order, different for all else, and recorded in full."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from neuron_compile.cache.key import make_key, recorded_key

PARTS = st.dictionaries(st.text(max_size=8), st.binary(max_size=80), min_size=1, max_size=5)
SIGNATURES = st.text(max_size=40)


@given(PARTS, SIGNATURES, st.randoms(use_true_random=False))
def test_the_order_of_the_parts_does_not_matter(parts, signature, random):
    shuffled = list(parts.items())
    random.shuffle(shuffled)
    text = signature.encode()
    assert make_key(list(parts.items()), text) == make_key(shuffled, text)


@given(PARTS, PARTS, SIGNATURES, SIGNATURES)
def test_other_parts_or_another_signature_make_another_key(parts, others, signature, another):
    assume(parts != others)
    key = make_key(list(parts.items()), signature.encode())
    assert make_key(list(others.items()), signature.encode()).graph_hash != key.graph_hash
    if signature != another:
        changed = make_key(list(parts.items()), another.encode())
        assert changed.graph_hash == key.graph_hash
        assert changed.shape_signature != key.shape_signature


def test_the_border_between_name_and_value_counts():
    split = [[("ab", b"c")], [("a", b"bc")], [("a", b"b"), ("c", b"")], [("a", b""), ("bc", b"")]]
    assert len({make_key(parts, b"").graph_hash for parts in split}) == len(split)


@given(PARTS, SIGNATURES)
def test_the_record_gives_the_key_again(parts, signature):
    key = make_key(list(parts.items()), signature.encode())
    record = {"something": "else", **key.provenance()}
    assert recorded_key(dict(reversed(record.items()))) == key


def test_a_record_without_a_key_is_none():
    assert recorded_key({}) is None
    assert recorded_key({"key_signature": "input 0: float32[2]"}) is None
    assert recorded_key({"key.graph": "=x"}) is None


@pytest.mark.parametrize("odd", ["\ud800", "input 0: \udcff"])
def test_a_record_that_no_key_can_make_is_none(odd):
    made = make_key([("graph", b"x")], b"input 0").provenance()
    for changed in ({"key_signature": odd}, {"key.graph": odd}, {f"key.{odd}": "=x"}):
        assert recorded_key({**made, **changed}) is None


def test_short_text_stands_for_itself_and_cannot_be_taken_for_a_digest():
    key = make_key([("torch", b"2.13.0"), ("long", b"x" * 65), ("odd", b"\n"), ("empty", b"")], b"")
    digests = dict(key.parts)
    assert digests["torch"] == "=2.13.0"
    assert digests["empty"] == "="
    assert all(len(digests[name]) == 64 for name in ("long", "odd"))
    looks_like_one = make_key([("a", digests["long"].encode())], b"")
    assert looks_like_one.graph_hash != make_key([("a", b"x" * 65)], b"").graph_hash


def test_two_parts_of_one_name_are_refused():
    with pytest.raises(ValueError, match="more than once: graph"):
        make_key([("graph", b"1"), ("graph", b"2")], b"")


def test_the_hashes_of_today_are_the_hashes_of_tomorrow():
    """A change of the hashing makes every cache of every user useless: it must be meant."""
    key = make_key([("graph", b"%0 = placeholder()"), ("torch", b"2.13.0")], b"input 0: float32[2]")
    assert key.graph_hash[:16] == "be6a4a3ae0d2c994"
    assert key.shape_signature[:16] == "5d0213a3c5858bf9"
