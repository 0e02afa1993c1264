"""`neff/schema.py`: sizes and strides of tensors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_compile.neff.schema import DTYPE_BYTES, page_bytes, row_major, span_bytes, tensor
from neuron_compile.neff.target import make


@given(st.lists(st.integers(1, 6), max_size=5))
def test_row_major_is_numpys_order(shape):
    array = np.empty(shape, np.float32)
    assert row_major(shape) == tuple(stride // 4 for stride in array.strides)
    assert span_bytes("float32", shape, row_major(shape)) == array.nbytes


def test_empty_and_scalar_tensors():
    assert row_major((2, 0, 3)) == (3, 3, 1)  # as PyTorch has it
    assert tensor("t", "int64", (2, 0, 3)).nbytes == 0
    assert tensor("t", "int64", ()).nbytes == 8


def test_strided_tensors_span_from_first_to_last_element():
    assert tensor("t", "int16", (2, 3), (1, 10)).nbytes == 2 * (1 + 20 + 1)
    assert tensor("t", "float32", (5, 7), (0, 0)).nbytes == 4  # expanded


@pytest.mark.parametrize("dtype", sorted(DTYPE_BYTES))
def test_sizes_agree_with_numpy(dtype):
    assert np.dtype("uint16" if dtype == "bfloat16" else dtype).itemsize == DTYPE_BYTES[dtype]


def test_images_are_aligned_to_the_largest_page():
    assert page_bytes(make("x86-64-v3")) == 4096
    assert page_bytes(make("aarch64")) == 65536
