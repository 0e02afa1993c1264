"""What AOTAutograd decomposes, and that asking for it is cheap."""

from __future__ import annotations

import subprocess
import sys

import torch

from neuron_compile.lowering import decomposition_table
from neuron_compile.lowering.registry import all_rules

aten = torch.ops.aten


def test_what_has_an_emitter_is_not_decomposed() -> None:
    assert not set(decomposition_table()) & set(all_rules())


def test_what_has_none_is_decomposed_by_pytorch() -> None:
    assert aten.mse_loss.default in decomposition_table()


def test_the_table_is_a_copy() -> None:
    decomposition_table().clear()
    assert decomposition_table()


def test_the_table_does_not_load_torch_mlir() -> None:
    code = (
        "import sys; from neuron_compile.lowering import decomposition_table; "
        "decomposition_table(); sys.exit('torch_mlir' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
