"""The work of a loop: a function, the indices that it is called with, and the way in which a worker finds it again.

A worker is a new process: the function is one that can be imported, a callable of a module or `"module:function"`. One
of the program that runs as `__main__` is found by running its file under another name, as `multiprocessing` does with
`spawn`.
"""

from __future__ import annotations

import importlib
import os
import pickle  # nosec B403 # only authenticated frames are unpickled
import runpy
import sys
import time
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from eslurm.loops.technique import ITERATIONS_MAX, checked_count

__all__ = ["Function", "Task", "TaskError", "indices_of", "pack", "unpack"]

Function = Callable[..., Any]
_is_unpacking = False
"""This process is a worker that runs the program's file to find the function."""
MAIN = "__loops_main__"
"""The name of a worker's copy of the program, so that `if __name__ == "__main__"` holds back what starts it."""


class TaskError(ValueError):
    """A function that a worker cannot find, or results that do not fit."""


@dataclass(frozen=True)
class Task:
    """A function and the indices of its loop. With `is_whole` it takes a whole chunk, a range, and returns its values."""

    function: Function
    arguments: tuple[Any, ...]
    indices: range
    is_whole: bool

    def compute(self, start: int, stop: int) -> tuple[Sequence[Any], float]:
        """Results of the iterations in order, and the seconds in the function. The function's errors pass, with a
        note.
        """
        span = self.indices[start:stop]
        function, arguments = self.function, self.arguments
        began = time.perf_counter()
        values: list[Any] = []
        if self.is_whole:
            values = list(function(span, *arguments))
            if len(values) != len(span):
                raise TaskError(
                    f"{len(values)} values for the {len(span)} indices of {span}: return one for each"
                )
        else:
            append = values.append
            try:
                for index in span:
                    append(function(index, *arguments))
            except BaseException as error:
                error.add_note(f"at index {span[len(values)]}")
                raise
        return values, time.perf_counter() - began


def indices_of(items: int | range) -> range:
    """The indices of the loop: 0 to n - 1, or a range. Raises TechniqueError."""
    if isinstance(items, range):
        checked_count("the range's length", len(items), 0, ITERATIONS_MAX)
        return items
    return range(checked_count("n", items, 0, ITERATIONS_MAX))


def pack(function: Function | str, arguments: tuple[Any, ...], indices: range, is_whole: bool) -> bytes:
    """The task as bytes for workers. Raises TaskError when a worker could not find the function."""
    if _is_unpacking:
        raise TaskError(
            "a worker that looks for the function has come to the start of a loop: "
            "put what starts it behind `if __name__ == '__main__'`"
        )
    if not isinstance(function, str) and not callable(function):
        raise TaskError(f"{function!r} is no function: give one, or its name as 'module:function'")
    path = [os.path.abspath(each) for each in sys.path]
    try:
        inner = pickle.dumps((function, arguments))
    except Exception as error:
        raise TaskError(
            f"{function!r} cannot be sent to workers ({error}): define it at the top of a module"
        ) from error
    return pickle.dumps((path, _main_file(inner), inner, indices, is_whole))


def unpack(data: bytes) -> Task:
    """The task in a worker. Raises what the import of the function's module raises."""
    global _is_unpacking
    _is_unpacking = True
    try:
        path, main, inner, indices, is_whole = pickle.loads(data)  # nosec B301 # only authenticated frames come here
        sys.path.extend(each for each in path if each not in sys.path)
        if main is not None:
            _run_main(main)
        function, arguments = pickle.loads(inner)  # nosec B301 # only authenticated frames come here
        return Task(named(function) if isinstance(function, str) else function, arguments, indices, is_whole)
    finally:
        _is_unpacking = False


def named(name: str) -> Function:
    """The function of this name, `module:function`. Raises TaskError, ImportError."""
    module, _, inner = name.partition(":")
    found: Any = importlib.import_module(module)
    try:
        for each in inner.split("."):
            found = getattr(found, each)
    except AttributeError:
        raise TaskError(f"{module} has no {inner!r}") from None
    if not callable(found):
        raise TaskError(f"{name} is no function")
    function: Function = found
    return function


def _main_file(pickled: bytes) -> str | None:
    """The file of the running program when the pickle names something in it. Raises TaskError when it has no file."""
    if b"__main__" not in pickled:
        return None
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name != "__main__":
        return f"-m {spec.name}"
    file: str | None = getattr(main, "__file__", None)
    if not file or not os.path.exists(file):
        raise TaskError(
            "a function typed into an interpreter cannot be sent to workers: put it into a module"
        )
    return os.path.abspath(file)


def _run_main(main: str) -> None:
    name = main.removeprefix("-m ")
    if name != main:
        found = runpy.run_module(name, run_name=MAIN, alter_sys=True)
    else:
        found = runpy.run_path(main, run_name=MAIN)
    module = types.ModuleType(MAIN)
    module.__dict__.update(found)
    sys.modules["__main__"] = sys.modules[MAIN] = module
