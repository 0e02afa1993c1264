"""Artifacts: where they go, what they are called, what happens when they cannot be written."""

from __future__ import annotations

from pathlib import Path

from neuron_compile.debug import artifacts


def test_without_a_directory_nothing_is_asked_for() -> None:
    def content() -> str:
        raise AssertionError("must not be made")

    artifacts(None, "m", "forward", "ab" * 32).write("neff", ".neff", content)


def test_names_carry_model_kind_hash_and_a_counter(tmp_path: Path) -> None:
    files = artifacts(tmp_path, "org/model v1", "forward", "ab" * 32)
    for _ in range(2):
        files.write("stablehlo", ".mlir", lambda: "text")
    files.write("neff", ".neff", lambda: b"\0\1")
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.*")) == [
        "neff/org_model_v1_forward_abababababab_0.neff",
        "stablehlo/org_model_v1_forward_abababababab_0.mlir",
        "stablehlo/org_model_v1_forward_abababababab_1.mlir",
    ]


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    one = artifacts(tmp_path, "m", "forward", "ab" * 32)
    two = artifacts(tmp_path, "m", "forward", "ab" * 32)  # as another process would
    one.write("neff", ".neff", lambda: b"one")
    two.write("neff", ".neff", lambda: b"two")
    assert sorted(p.read_bytes() for p in tmp_path.rglob("*.neff")) == [b"one", b"two"]


def test_directory_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog) -> None:
    root = tmp_path / "file"
    root.write_text("")
    artifacts(root, "m", "forward", "ab" * 32).write("neff", ".neff", lambda: b"x")
    assert "TORCH_NEURONX_DEBUG_DIR" in caplog.text
