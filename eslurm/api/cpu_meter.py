"""CPU meter: a coroutine's time on the event loop, its own steps without those between them.

Invariant: to its awaiter a metered coroutine looks like the coroutine itself, cancellation included.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from time import thread_time
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Metered(Generic[T]):
    """Await it instead of `work`; `charge` gets the CPU seconds of each step as soon as it is over."""

    __slots__ = ("_charge", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], charge: Callable[[float], None]) -> None:
        self._work = work
        self._charge = charge

    def __await__(self) -> Generator[Any, None, T]:
        work, charge = self._work, self._charge
        thrown: BaseException | None = None
        while True:
            began_s = thread_time()
            try:
                waiting = work.send(None) if thrown is None else work.throw(thrown)
            except StopIteration as ended:
                result: T = ended.value
                return result
            finally:
                charge(thread_time() - began_s)
            thrown = None
            try:
                yield waiting
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:
                thrown = error
