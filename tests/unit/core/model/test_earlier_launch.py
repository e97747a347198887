"""Spools and sealed commands of releases whose launches copied the spec's fields are still read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from eslurm.core.agent.records import Prepared, Record
from eslurm.core.model.earlier_launch import decode, decode_command
from eslurm.core.model.job import JobSpec, Principal
from eslurm.core.model.protocol import Command, JobLaunch, LaunchStep, NodeGroup, Prepare, Start
from eslurm.core.model.request import Request
from esnoded.spool import Spool

OLD = bytes.fromhex(
    "dc00250702a5666c75696495a3616461cd03e96492641ba6736f636b6574a46d61696e9193919203029204cd080002a7636e5b332d345d"
    "02c40473737373c40465656565a22f77040291a161a16fa165a169c23f3ccb4014000000000000cb4072c00000000000060304010901a7"
    "70687973696373a6757267656e74a6636f757273650a1ec3a72f772f73617665919303a3677075920001c4107474747474747474747474"
    "7474747474"
)
"""As revision 2e778af wrote it, with every field set."""
NEW = JobLaunch(
    7,
    2,
    JobSpec(
        "fluid",
        Principal("ada", 1001, 100, (100, 27)),
        "main",
        (Request(cpus_per_task=2),),
        b"ssss",
        b"eeee",
        "/w",
        60,
        "o",
        "e",
        "i",
        False,
        arguments=("a",),
        account="physics",
        umask=0o77,
        qos="urgent",
        reservation="course",
        warn_signal=10,
        warn_before_s=30,
        warn_batch_only=True,
        warn_script="/w/save",
        trace=b"t" * 16,
    ),
    (NodeGroup(((3, 2),), (4, 2048), 2),),
    "cn[3-4]",
    5.0,
    300.0,
    6,
    3,
    4,
    1,
    9,
    ((3, "gpu", (0, 1)),),
)
HEAD = ("c", "main", 1, 5, 0, ((3, 2),), (1, 1), 99)
_records: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def packed(*values: Any) -> bytes:
    return msgspec.msgpack.encode(values)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("prepare", msgspec.Raw(OLD), True), Prepare(NEW, True)),
        (("start", 7, 2, msgspec.Raw(OLD)), Start(7, 2, NEW)),
        (
            ("launch_step", 7, 2, 0, (), ("id",), b"", "/", "h:1", b"c", 1, 1, msgspec.Raw(OLD)),
            LaunchStep(7, 2, 0, (), ("id",), b"", "/", "h:1", b"c", 1, 1, NEW),
        ),
    ],
    ids=["prepare", "start", "launch_step"],
)
def test_commands_of_an_earlier_release_start_what_they_said(old: tuple[Any, ...], new: Any) -> None:
    assert decode_command(packed(*HEAD, old)) == Command(*HEAD, new)


def test_spools_of_an_earlier_release_are_read() -> None:
    record = packed(5, 3, "main", 5, msgspec.Raw(OLD), True)
    assert decode(_records, record) == Prepared(3, "main", 5, NEW, True)


def test_a_launch_of_an_earlier_release_needs_no_more_than_it_had_to() -> None:
    least = msgspec.msgpack.decode(OLD)[:13]
    found = decode(_records, packed(5, 3, "main", 5, least))
    assert isinstance(found, Prepared)
    spec = JobSpec("fluid", NEW.spec.user, "main", NEW.spec.components, b"ssss", b"eeee", "/w")
    assert found.launch == JobLaunch(7, 2, spec, NEW.groups, NEW.node_names)


@pytest.mark.parametrize("place", range(13))
def test_what_is_of_no_release_is_refused(place: int) -> None:
    broken = msgspec.msgpack.decode(OLD)
    broken[place] = {"what": 1}
    # The number of nodes and of tasks are in the groups, too.
    if place in (7, 11):
        assert decode_command(packed(*HEAD, ("prepare", broken)))
        return
    for body in (
        ("prepare", broken),
        ("prepare", broken[:12]),
        ("prepare",),
        ("prepare", 5),
        (),
        7,
        {},
        None,
    ):
        with pytest.raises(msgspec.ValidationError):
            decode_command(packed(*HEAD, body))
    for record in ((5, 3, "main", 5, broken), (5,), (99, broken), ()):
        with pytest.raises(msgspec.ValidationError):
            decode(_records, packed(*record))


def test_a_value_of_a_foreign_kind_is_a_decoding_error() -> None:
    """Callers expect errors of the decoder alone."""
    fields = msgspec.msgpack.decode(OLD)
    fields[12] = msgspec.msgpack.Ext(5, b"x")
    with pytest.raises(msgspec.ValidationError):
        decode_command(packed(*HEAD, ("prepare", fields)))


def test_what_is_of_this_release_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(msgspec, "convert", None)
    assert decode_command(packed(*HEAD, Prepare(NEW))).body == Prepare(NEW)


def test_a_spool_of_a_release_whose_launches_copied_the_spec_is_read(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "agent.spool")
    spool.append([msgspec.Raw(packed(5, 3, "main", 5, msgspec.Raw(OLD), True))])  # type: ignore[list-item]
    spool.close()
    spool = Spool(tmp_path / "agent.spool")
    assert spool.state.prepared == {(3, 7, 2): Prepared(3, "main", 5, NEW, True)}
    spool.close()
