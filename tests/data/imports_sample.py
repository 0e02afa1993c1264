"""Read by test_imports_one_way.py, never imported: one import of every form."""

import json
from typing import TYPE_CHECKING

from .cache import nothing
from neuron_compile.neff.reader import read

if TYPE_CHECKING:
    import torch


def late() -> None:
    import numpy
