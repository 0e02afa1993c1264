"""Each topic once; never an exception, whatever the user made of Python's warnings."""

from __future__ import annotations

import subprocess
import sys

from neuron_compile.cache.warn_once import forget_warnings, warn_once
from tests.source_tree import ROOT


def test_each_topic_once(caplog):
    for topic, message in [("a", "first"), ("a", "second"), ("b", "third")]:
        warn_once(topic, message)
    assert [record.getMessage() for record in caplog.records] == ["first", "third"]
    forget_warnings()
    warn_once("a", "again 100 %s")
    assert caplog.records[-1].getMessage() == "again 100 %s"


def test_it_reaches_the_user_who_configured_nothing_and_raises_for_nobody():
    code = "from neuron_compile.cache.warn_once import warn_once; warn_once('a', 'the sentence')"
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stderr == "the sentence\n"
