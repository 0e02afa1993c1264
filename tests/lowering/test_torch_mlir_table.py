"""What is left to Torch-MLIR means there what it means in eager."""

from __future__ import annotations

import torch

from neuron_compile.lowering.registry import all_rules
from neuron_compile.lowering.torch_mlir_table import is_translated, translated
from tests.lowering.single_op import check

aten = torch.ops.aten

CASES = {
    aten.pixel_shuffle.default: lambda: (aten.pixel_shuffle.default, torch.randn(2, 8, 3, 4), 2),
}  # fmt: skip


def test_every_operator_of_the_table_is_compared() -> None:
    assert set(CASES) == translated()
    for case in CASES.values():
        check(*case(), tolerance=1e-5)


def test_the_table_holds_what_has_no_emitter() -> None:
    assert not translated() & set(all_rules())
    assert is_translated(aten.pixel_shuffle.default)
    assert not is_translated(aten.add.Tensor)
