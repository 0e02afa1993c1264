"""Warnings of the cache, each said once in a process.

In: a topic and a sentence. Out: one record of the logger `neuron_compile.cache`. Invariant: it
cannot raise, also not under `python -W error`; this is why it is a log record and not a
`warnings.warn`.
"""

from __future__ import annotations

import logging

_LOGGER = logging.getLogger("neuron_compile.cache")
_said: set[str] = set()


def warn_once(topic: str, message: str) -> None:
    """Log `message`, unless `topic` had one already; forked children remember it."""
    if topic not in _said:
        _said.add(topic)
        _LOGGER.warning("%s", message)


def was_said(topic: str) -> bool:
    """True if `topic` had its message."""
    return topic in _said


def forget_warnings() -> None:
    """Say everything once more: for tests, and after the user has changed the cache directory."""
    _said.clear()
