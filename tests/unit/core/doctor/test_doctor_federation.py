"""The federation as the doctor sees it: its own standing, other cells, the servers of the store, the way to them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from escli.admin.doctor import report
from eslurm.config.federation import FederationSection, is_open_to_anybody, open_endpoints
from eslurm.core.doctor.federation import (
    Federated,
    check_cells,
    check_federation,
    check_store,
    check_usage,
)
from eslurm.core.doctor.finding import ERROR, Finding
from eslurm.core.federation.membership import Standing
from eslurm.core.federation.usage import OtherUsage
from eslurm.core.federation.values import Unreadable
from eslurm.core.federation.view import CellState, CellView, FederationView
from eslurm.core.model.federation import FORMAT, CellRecord, CellUsage, Summary
from eslurm.ports.kv import KvMember
from eslurm.v1 import controller_pb2 as pb
from tests.support.golden import Golden

SECOND = 1_000_000
NOW = 1_000_000 * SECOND


def cell(name: str, **fields: Any) -> CellView:
    record = CellRecord(FORMAT, 1, name, name, b"ring", 0)
    made = {
        "state": CellState.ALIVE,
        "record": record,
        "age_us": 2 * SECOND,
        "summary": Summary(FORMAT, 1, 1, NOW - 2 * SECOND),
    }
    return CellView(name, **(made | fields))  # type: ignore[arg-type]


MEMBER = KvMember("https://e1:2379", "3.4.23", is_leader=True, size_bytes=20 << 20)
WELL = Federated(
    FederationView("lab", "alpha", Standing.MEMBER, cells=(cell("alpha"), cell("beta"))),
    NOW,
    5.0,
    (MEMBER,),
    answer_us=20_000,
)


def findings(found: Federated) -> list[Finding]:
    checks = (check_federation, check_cells, check_usage, check_store)
    return [one for check in checks for one in check(found) if one is not None]


def of_cells(*cells: CellView) -> list[tuple[str, str, str]]:
    found = replace(WELL, view=replace(WELL.view, cells=cells))
    return [(one.severity, one.what, one.text) for one in findings(found)]


def test_a_federation_in_order_has_no_findings() -> None:
    assert findings(WELL) == []
    left = replace(WELL.view, standing=Standing.LEFT, cells=(cell("beta", state=CellState.SILENT),))
    assert findings(replace(WELL, view=left)) == []


def test_other_cells() -> None:
    silent = cell("beta", state=CellState.SILENT, silent_us=42 * SECOND)
    assert of_cells(silent) == [("warning", "cell beta", "its lease has ended, it is silent for 42 s")]
    assert of_cells(cell("beta", age_us=31 * SECOND)) == [
        ("warning", "cell beta", "its lease is kept, and its last word is 31 s old")
    ]
    twin = cell("beta", problem="its number 1 is that of alpha, too")
    assert of_cells(twin) == [("warning", "cell beta", "its number 1 is that of alpha, too")]


def test_usage_that_fair_share_counts() -> None:
    word = CellUsage(FORMAT, 1, 1, NOW, 600, ())
    words = (
        OtherUsage("beta", 300 * SECOND, word),
        OtherUsage("gamma", 301 * SECOND, word),
        OtherUsage("delta", 9_000 * SECOND, problem="its keys are not trusted here"),
        OtherUsage("epsilon", 0, word, "usage fades there and not here, or here and not there"),
        OtherUsage("zeta", 0, problem="it cannot be read: 9 bytes", is_readable=False),
    )
    found = findings(replace(WELL, usage=words, usage_problem="etcd: mvcc: database space exceeded"))
    assert [(one.check, one.severity, one.what, one.text) for one in found] == [
        ("shared usage", "warning", what, text)
        for what, text in (
            ("cell alpha", "its usage is not written: etcd: mvcc: database space exceeded"),
            (
                "cell gamma",
                "its usage is 301 s old, more than 300 s: fair share counts what it was, and lets it fade",
            ),
            (
                "cell epsilon",
                "its usage does not count: usage fades there and not here, or here and not there",
            ),
            ("cell zeta", "its usage does not count: it cannot be read: 9 bytes"),
        )
    ]
    assert all(one.advice for one in found)


def test_clocks_of_cells() -> None:
    ahead = cell("beta", summary=Summary(FORMAT, 1, 1, NOW + 90 * SECOND))
    behind = cell("gamma", summary=Summary(FORMAT, 1, 1, NOW - 63 * SECOND))
    little = cell("delta", summary=Summary(FORMAT, 1, 1, NOW - 12 * SECOND))
    assert of_cells(ahead, behind, little) == [
        ("warning", "cell beta", "its clock is 92 s ahead of ours"),
        ("warning", "cell gamma", "its clock is 61 s behind ours"),
    ]
    # Its own summary is read with its own clock.
    assert of_cells(cell("alpha", summary=Summary(FORMAT, 1, 1, 0))) == []


def test_nothing_is_said_of_others_while_the_store_is_away() -> None:
    unknown = cell("beta", state=CellState.UNKNOWN, problem="the store is away")
    view = replace(WELL.view, standing=Standing.AWAY, problem="no leader", cells=(unknown,))
    (one,) = findings(replace(WELL, view=view, members=(), answer_us=None, problem="connection refused"))
    assert (one.severity, one.what, one.text) == (ERROR, "cell alpha", "away: connection refused")
    assert "esctl federation rejoin" in one.advice


def test_the_way_to_the_store() -> None:
    here = FederationSection(name="lab", endpoints=["http://127.0.0.1:1", "http://localhost:2"])
    assert open_endpoints(here) == () and not is_open_to_anybody(here)
    plain = FederationSection(name="lab", plain=True, endpoints=["http://e1:1", "http://127.0.0.1:1"])
    assert open_endpoints(plain) == ("http://e1:1",) and is_open_to_anybody(plain)
    tls = FederationSection(name="lab", endpoints=["https://e1:1"], ca="ca.pem")
    assert open_endpoints(tls) == () and is_open_to_anybody(tls)
    tls.user = "alpha"
    assert not is_open_to_anybody(tls)


def test_what_is_said_of_a_federation_in_trouble(golden: Golden) -> None:
    view = replace(
        WELL.view,
        problem="etcd at https://e1:2379: mvcc: database space exceeded",
        unreadable=(Unreadable("/eslurm/lab/summary/beta", "70000 bytes, at most 16384"),),
        skipped=2,
        cells=(
            cell("beta", age_us=45 * SECOND),
            cell("gamma", state=CellState.SILENT),
            cell("delta", summary=Summary(FORMAT, 1, 1, NOW + 600 * SECOND)),
        ),
    )
    members = (
        replace(MEMBER, alarms=("CORRUPT", "NOSPACE")),
        replace(MEMBER, endpoint="https://e2:2379", size_bytes=3 << 29),
        KvMember("https://e3:2379", error="connection refused\x1b[2J"),
    )
    found = replace(
        WELL,
        view=view,
        members=members,
        answer_us=1_400_000,
        open_endpoints=("http://e4:2379",),
        is_anybody=True,
    )
    quorum = replace(WELL, members=members[2:], answer_us=None, problem="etcd: no leader")
    reply = pb.DoctorReply(revision=7, checks=["federation", "cells", "etcd"])
    for one in findings(found) + findings(quorum)[-1:]:
        reply.findings.add(
            check=one.check, severity=one.severity, what=one.what, text=one.text, advice=one.advice
        )
    golden("cli/doctor_federation.txt", report(reply) + "\n")
