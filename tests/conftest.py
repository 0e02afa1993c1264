"""Fixtures of the whole suite: a cache directory of its own, fixed seeds, no state between tests.

In: pytest. Out: an environment where no test sees the user's cache or another test's graphs.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Iterator

import pytest

# Set before anything imports neuron_compile, and inherited by the processes that tests start.
_CACHE = tempfile.TemporaryDirectory(prefix="neuron-compile-tests-")
os.environ["TORCH_NEURONX_NEFF_CACHE_DIR"] = _CACHE.name


@pytest.fixture(autouse=True)
def _isolated() -> Iterator[None]:
    """The same seeds for every test, and no graph that Dynamo kept from an earlier one."""
    random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
    yield
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
