"""The layout of a tensor as an MLIR attribute.

In: a FakeTensor. Out: `neuron.strides`, in elements, only where the tensor is not row-major
contiguous. Invariant: dimensions of size 1 and empty tensors do not count.
"""

from __future__ import annotations

import torch
from torch_mlir import ir


def is_row_major(tensor: torch.Tensor) -> bool:
    """Whether a flat row-major buffer of the tensor's shape has the tensor's layout."""
    if tensor.numel() == 0:
        return True
    expected = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def strides_attribute(tensor: torch.Tensor) -> dict[str, ir.Attribute]:
    """`{"neuron.strides": array<i64: ...>}`, or nothing for a row-major tensor."""
    if is_row_major(tensor):
        return {}
    strides = list(tensor.stride())
    if tensor.is_complex():  # in the function a real tensor with a last dimension of 2
        strides = [*(2 * stride for stride in strides), 1]
    return {"neuron.strides": ir.DenseI64ArrayAttr.get(strides)}
