"""A real etcd for a measurement: the tests' own, durable, gone when the block ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.processes import keep
from benchmarks.recovery.postgres import NoServer

if TYPE_CHECKING:
    from tests.support.etcd import Etcd


@contextmanager
def running_etcd(parent: Path, members: int = 1) -> Iterator[Etcd]:
    """A new store below `parent`. Raises `NoServer`, which says how to install it."""
    import pytest

    from tests.support import etcd, leaks

    try:
        etcd.program()
    except (pytest.fail.Exception, pytest.skip.Exception) as error:
        raise NoServer(str(error)) from None
    keep(leaks.kept_children)
    with etcd.own(members, parent=parent) as store:
        yield store
