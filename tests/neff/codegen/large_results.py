"""What is done for large tensors only, done for small ones: so tests of it stay fast."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from neuron_compile.neff.codegen import loops, row_prefetch


@contextlib.contextmanager
def every_result_large() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loops, "STREAMED_BYTES", 0)
        patch.setattr(row_prefetch, "SMALLEST_OPERAND", 0)
        yield
