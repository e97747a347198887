"""How a process imports much at its start: the garbage collector stays away from modules.

Invariant: afterwards the collector is as it was, but for what exists by then: that is never looked at again.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Around the imports of a daemon or a command.

    Modules make many objects and no garbage, and live as long as the process. Looking for garbage in them again and again
    while they are imported, and once more when the process ends, was a third of what the start of a daemon cost.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
