"""The identity of an agent's nodes outlives its spool, and is known to one agent at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from eslurm.core.agent.records import Booted, Folded, Identity, NumberGiven, Prepared, Record
from esnoded.kept_identity import NAME, IdentifiedSpool
from esnoded.spool import Spool, SpoolError
from tests.kits.agent import launch

RECORDS: list[Record] = [
    Booted("test", "boot-1", 3),
    Identity("cn0", "uid0"),
    Identity("cn1", "uid1"),
    NumberGiven("cn0", 4),
    Prepared(4, "main", 5, launch()),
    Booted("test", "boot-1", 4),
]


@pytest.fixture
def path(state_dir: Path) -> Iterator[Path]:
    yield state_dir / "agent.spool"


def read(path: Path) -> Folded:
    spool = IdentifiedSpool(path)
    spool.close()
    return spool.state


def written(path: Path) -> None:
    spool = IdentifiedSpool(path)
    spool.append(RECORDS, durable=True)
    spool.close()


def test_a_lost_spool_takes_neither_identity_nor_number_nor_the_count_of_starts_with_it(path: Path) -> None:
    written(path)
    path.unlink()
    for _ in range(2):
        state = read(path)
        assert (state.cluster, state.starts) == ("test", 4)
        assert (state.identities, state.numbers) == ({"cn0": "uid0", "cn1": "uid1"}, {"cn0": 4})
        assert not state.prepared, "of jobs the spool alone knows"


def test_each_file_restores_the_other(path: Path) -> None:
    written(path)
    path.unlink()
    read(path)
    path.with_name(NAME).unlink()
    state = read(path)
    assert (state.identities, state.numbers) == ({"cn0": "uid0", "cn1": "uid1"}, {"cn0": 4})


def test_a_spool_of_an_earlier_version_is_followed_by_its_identities(path: Path) -> None:
    spool = Spool(path)
    spool.append(RECORDS, durable=True)
    spool.close()
    assert read(path).prepared
    path.unlink()
    assert read(path).identities == {"cn0": "uid0", "cn1": "uid1"}


def test_a_spool_restored_from_an_older_copy_counts_on(path: Path) -> None:
    spool = IdentifiedSpool(path)
    spool.append(RECORDS[:5], durable=True)
    spool.close()
    copy = path.read_bytes()
    spool = IdentifiedSpool(path)
    spool.append(RECORDS[5:], durable=True)
    spool.close()
    path.write_bytes(copy)
    assert read(path).starts == 4


def test_no_second_agent_has_the_identity_even_if_the_spool_is_gone(path: Path) -> None:
    first = IdentifiedSpool(path)
    first.append(RECORDS, durable=True)
    path.unlink()
    with pytest.raises(SpoolError, match=f"{NAME} is in use: another agent serves this state directory"):
        IdentifiedSpool(path)
    first.close()
    assert read(path).identities == {"cn0": "uid0", "cn1": "uid1"}


def test_what_is_opened_again_is_not_written_again(path: Path) -> None:
    written(path)
    sizes = [one.stat().st_size for one in (path, path.with_name(NAME))]
    read(path)
    assert [one.stat().st_size for one in (path, path.with_name(NAME))] == sizes
