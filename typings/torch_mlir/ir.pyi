# The wheel has no annotations. Named here are the classes that our own aliases rest on; all else is
# Any.
from typing import Any

class Value:
    def __getattr__(self, name: str) -> Any: ...

def __getattr__(name: str) -> Any: ...
