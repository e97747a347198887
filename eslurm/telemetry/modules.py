"""Large imports at a process's start without garbage collection.

Invariant: afterwards the collector is as it was, but for the objects that exist by then, which are frozen.
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
