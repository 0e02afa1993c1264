"""Arguments that overlap in one call and not in another."""

from __future__ import annotations

import torch

from neuron_compile.aliasing import AliasGuard, overlaps, places

CHANGED = frozenset({0})


def test_separate_arguments_have_no_pattern() -> None:
    assert overlaps([torch.ones(3), 5, torch.ones(3)], CHANGED) == ()


def test_sharing_a_storage_without_overlap_is_no_pattern() -> None:
    base = torch.ones(8)
    assert overlaps([base[:4], base[4:]], CHANGED) == ()


def test_overlap_names_both_and_where_they_lie() -> None:
    base = torch.ones(8)
    assert overlaps([base[:4], torch.ones(1), base[2:6]], CHANGED) == (
        (0, 0, (4,), (1,)),
        (2, 2, (4,), (1,)),
    )


def test_overlap_of_what_is_only_read_does_not_matter() -> None:
    base = torch.ones(8)
    assert overlaps([torch.ones(1), base[:4], base[2:6]], CHANGED) == ()


def test_bytes_count_not_elements() -> None:
    base = torch.ones(8)
    assert overlaps([base[4:5], base.view(torch.int16)[8:9]], CHANGED) != ()
    assert overlaps([base[4:5], base.view(torch.int16)[4:5]], CHANGED) == ()


def test_empty_tensors_overlap_nothing() -> None:
    base = torch.ones(8)
    assert overlaps([base, base[3:3]], CHANGED) == ()


def test_a_variant_per_pattern_made_once() -> None:
    made = []

    def recompile(args):
        made.append([tuple(a.shape) for a in args])
        return lambda *_args: f"variant {len(made)}"

    guard = AliasGuard(lambda *_args: "first", [0], recompile)
    base = torch.ones(8)
    apart = torch.ones(4), torch.ones(4)
    assert guard.call(*apart) == "first"
    assert guard.call(base[:4], base[2:6]) == "variant 1"
    assert guard.call(base[:4], base[2:6]) == "variant 1"
    assert guard.call(base[:4], base[3:7]) == "variant 2"
    assert guard.call(*apart) == "first"
    assert len(made) == 2


def test_places_matter_where_they_are_baked_in() -> None:
    made = []

    def recompile(args):
        made.append(places(args))
        return lambda *_args: f"variant {len(made)}"

    base = torch.ones(8)
    guard = AliasGuard(lambda *_args: "first", [], recompile, offsets=True)
    assert guard.call(base[:4], 7) == "first"
    assert guard.call(base[2:6], 7) == "variant 1"
    assert guard.call(base[2:6], 7) == "variant 1"
    assert guard.call(torch.ones(9)[2:6], 7) == "variant 2"
    assert guard.call(base[:4], 7) == "first"
    assert made == [((0, 2, (8,), ()),), ((0, 2, (9,), ()),)]


def test_variants_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr("neuron_compile.aliasing._KEPT", 2)
    guard = AliasGuard(lambda *_args: None, [], lambda _args: lambda *_args: None, offsets=True)
    base = torch.ones(8)
    for offset in (0, 1, 2, 3, 1):
        guard.call(base[offset : offset + 2])
    assert len(guard._variants) == 2
