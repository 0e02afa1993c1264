"""A miss is explained by what differs from the most similar entry."""

from __future__ import annotations

import os
import time

import pytest

from neuron_compile.cache.explain import Difference, compare, explain
from neuron_compile.cache.notes import Notes
from tests.cache.entries import entry_bytes, key_of, store_at

SHAPES = "input 0: float32[8, 128]\ninput 1: float32[128]"


def put(store, key) -> None:
    assert store.put(key, entry_bytes(key, "x"))


def test_an_empty_cache(tmp_path):
    assert "has no entries" in str(explain(store_at(tmp_path), key_of("g")))


def test_a_hit_is_no_miss(tmp_path):
    store, key = store_at(tmp_path), key_of("g")
    put(store, key)
    assert explain(store, key).reason == "the cache has this entry"


def test_a_damaged_entry_is_the_reason(tmp_path):
    store, key = store_at(tmp_path), key_of("g")
    store.put(key, b"damaged")
    assert explain(store, key).reason == "the entry is damaged: the checksum is wrong"
    assert store.path(key).exists()


def test_another_shape_of_the_same_graph_names_the_input(tmp_path):
    store = store_at(tmp_path)
    put(store, key_of("g", SHAPES))
    found = explain(store, key_of("g", SHAPES.replace("[8,", "[4,")))
    assert found.differences == (Difference("input 0", "float32[8, 128]", "float32[4, 128]"),)
    assert "1 other shape signature" in found.reason
    assert "input 0: stored float32[8, 128], wanted float32[4, 128]" in str(found)


def test_an_option_and_a_version_are_named_with_both_values(tmp_path):
    store = store_at(tmp_path)
    put(store, key_of("g", torch="2.12.0", **{"option.threads": "2"}))
    found = explain(store, key_of("g", torch="2.13.0", **{"option.threads": "4"}))
    assert found.differences == (
        Difference("option.threads", "=2", "=4"),
        Difference("torch", "=2.12.0", "=2.13.0"),
    )
    assert "torch: stored 2.12.0, wanted 2.13.0" in str(found)
    assert "no entry has this graph hash" in str(found)


def test_long_parts_are_said_to_differ(tmp_path):
    store = store_at(tmp_path)
    put(store, key_of("a" * 100))
    assert "graph differs" in str(explain(store, key_of("b" * 100)))


def test_a_part_that_is_missing_on_one_side(tmp_path):
    store = store_at(tmp_path)
    put(store, key_of("g", new="1"))
    assert "new: stored 1, wanted nothing" in str(explain(store, key_of("g")))


@pytest.mark.parametrize("newest", ["near", "far"])
def test_the_nearest_entry_is_the_one_with_the_fewest_differences(tmp_path, newest):
    store = store_at(tmp_path)
    near, far = key_of("g", a="1", b="1"), key_of("h", a="2", b="2")
    for key in (near, far):
        put(store, key)
    os.utime(store.path(far if newest == "near" else near), (1, 1))
    found = explain(store, key_of("g", a="1", b="3"))
    assert found.nearest == store.path(near)
    assert [difference.name for difference in found.differences] == ["b"]


def test_entries_of_another_target_are_compared_too(tmp_path):
    put(store_at(tmp_path, "aarch64"), key_of("g", features="neon"))
    found = explain(store_at(tmp_path), key_of("g", features="avx2"))
    assert "features: stored neon, wanted avx2" in str(found)


def test_entries_of_the_same_run_can_be_left_out(tmp_path):
    store = store_at(tmp_path)
    put(store, key_of("g", a="1"))
    assert "has no entries" in str(explain(store, key_of("g"), before=time.time() - 60))


def test_damaged_neighbours_are_skipped(tmp_path):
    store = store_at(tmp_path)
    store.put(key_of("g", a="1"), b"damaged")
    assert "can be compared" in str(explain(store, key_of("g")))
    assert store.path(key_of("g", a="1")).exists()


def test_a_long_list_is_cut(tmp_path):
    store = store_at(tmp_path)
    many = "\n".join(f"input {i}: float32[{i}]" for i in range(20))
    put(store, key_of("g", many))
    text = str(explain(store, key_of("g", many.replace("float32", "float64"))))
    assert "and 12 more differences" in text
    assert len(text.splitlines()) == 11


def put_graph(store, text: str, **parts: str):
    key = key_of(text * 20, **parts)
    notes = Notes(graph=text)
    store.put(key, entry_bytes(key, "x", notes))
    return key


def test_graphs_are_compared_by_operators_where_both_are_known(tmp_path):
    store = store_at(tmp_path)
    put_graph(store, "%0 = aten::exp(1)")
    wanted = "%0 = aten::log(1)"
    found = explain(store, key_of(wanted * 20), graph=wanted)
    assert [str(difference) for difference in found.differences] == [
        "operators: stored aten::exp, wanted aten::log",
        "line 1 of the graph: stored %0 = aten::exp(1), wanted %0 = aten::log(1)",
    ]


def test_the_nearest_graph_comes_before_the_nearest_key(tmp_path):
    store = store_at(tmp_path)
    near = put_graph(store, "%0 = aten::exp(1)", a="1", b="1")
    put_graph(store, "%0 = aten::sin(1)\n%1 = aten::cos(2)")
    wanted = "%0 = aten::exp(2)"
    assert explain(store, key_of(wanted * 20), graph=wanted).nearest == store.path(near)


def test_an_entry_of_another_kind_is_farther_than_its_operators(tmp_path):
    store = store_at(tmp_path)
    put_graph(store, "%0 = aten::exp(1)", **{"aot.kind": "forward"})
    near = put_graph(store, "%0 = aten::sin(1)", **{"aot.kind": "backward"})
    wanted = "%0 = aten::exp(2)"
    found = explain(store, key_of(wanted * 20, **{"aot.kind": "backward"}), graph=wanted)
    assert found.nearest == store.path(near)


def test_digests_of_the_values_are_no_news_where_an_input_differs(tmp_path):
    store = store_at(tmp_path)
    put(store, key_of("g", f"{SHAPES}\nvalues: {'0' * 64}"))
    found = explain(store, key_of("g", f"{SHAPES.replace('[8,', '[4,')}\nvalues: {'1' * 64}"))
    assert [difference.name for difference in found.differences] == ["input 0"]
    found = explain(store, key_of("g", f"{SHAPES}\nvalues: {'1' * 64}"))
    assert [difference.name for difference in found.differences] == ["values"]


def test_parts_have_names_for_people(tmp_path):
    store = store_at(tmp_path)
    put(store, key_of("g", sources="0" * 64, **{"option.target": "x"}))
    text = str(explain(store, key_of("g", sources="1" * 64, **{"option.target": "y"})))
    assert "neuron-compile's own code differs" in text
    assert "option target: stored x, wanted y" in text


def test_equal_keys_do_not_differ():
    assert compare(key_of("g", SHAPES), key_of("g", SHAPES)) == ()
