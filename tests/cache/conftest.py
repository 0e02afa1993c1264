"""In: pytest. Out: every test of the cache hears each warning anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from neuron_compile.cache.warn_once import forget_warnings


@pytest.fixture(autouse=True)
def _hear_warnings() -> Iterator[None]:
    forget_warnings()
    yield
    forget_warnings()
