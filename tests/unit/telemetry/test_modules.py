"""Imports at a daemon's start: the collector stays away, and is as it was afterwards."""

from __future__ import annotations

import gc

import pytest

from eslurm.telemetry.modules import importing


def test_the_collector_stays_away_from_what_is_imported() -> None:
    with importing():
        assert not gc.isenabled()
        kept: list[object] = [[]]
        assert gc.is_tracked(kept)
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    assert all(one is not kept for one in gc.get_objects()), "it is not looked at again"


def test_it_is_as_before_when_an_import_fails() -> None:
    with pytest.raises(ImportError), importing():
        raise ImportError("no such module")
    assert gc.isenabled()


def test_who_had_it_off_keeps_it_off() -> None:
    gc.disable()
    try:
        with importing():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
