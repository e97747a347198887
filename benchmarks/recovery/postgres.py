"""A real PostgreSQL server for a measurement: the tests' own, durable, gone when the block ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchmarks.processes import keep

if TYPE_CHECKING:
    from tests.support.postgres import Server


class NoServer(Exception):
    """There is no PostgreSQL here. The text says how to install it."""


@contextmanager
def running_server() -> Iterator[Server]:
    """A new server; its `create()` makes a database, whose `url` a configuration takes. Raises `NoServer`."""
    import pytest

    from tests.support import leaks, postgres

    try:
        postgres.programs()
    except pytest.fail.Exception as error:
        raise NoServer(str(error)) from None
    keep(leaks.kept_children)
    with postgres.own_server(durable=True) as server:
        yield server
