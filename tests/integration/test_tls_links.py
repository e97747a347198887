"""Links over TLS. Goal: what fits works as without; what does not fit ends with one line that names the endpoint and the
way out, whichever side it is on; certificates change under links that live."""

from __future__ import annotations

import asyncio
import ssl
import time
from pathlib import Path

import pytest

from eslurm.ports.link import LinkError, LinkRefused, LinkUnreachable
from eslurm.transport import tls_diagnosis
from eslurm.transport.options import TableSettings
from eslurm.transport.tls import LOOK_EVERY_S, Tls
from eslurm.transport.tls_options import TlsFiles
from tests.kits.api import PATIENCE_S, process, report, until
from tests.support.certificates import KEPT, place, replace_pair
from tests.support.loops import both_loops, run
from tests.support.ports import free_port

NO_BACKOFF = TableSettings(backoff_first_s=0.0)


@pytest.fixture(autouse=True)
def _asks_patiently(monkeypatch: pytest.MonkeyPatch) -> None:
    """A diagnosis of an endpoint waits for its answer, however busy the machine is."""
    monkeypatch.setattr(tls_diagnosis, "ASK_S", PATIENCE_S)


def kept(
    directory: Path, name: str, pair: str = "server", ca: str = "ca", *, required: bool = False
) -> TlsFiles:
    """Files of a process."""
    home = directory / name
    home.mkdir()
    return place(home, pair, ca, required=required)


async def shown_at(endpoint: str) -> float:
    """The end of the certificate that is served there."""
    host, _, port = endpoint.rpartition(":")
    context = ssl.create_default_context(cafile=str(KEPT / "ca.pem"))
    context.set_alpn_protocols(["h2"])
    _reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=host)
    certificate = writer.get_extra_info("ssl_object").getpeercert()
    writer.transport.abort()
    return float(ssl.cert_time_to_seconds(certificate["notAfter"]))


@both_loops
@pytest.mark.parametrize("required", [False, True])
def test_items_go_both_ways_and_in_bulk(uvloop: bool, tmp_path: Path, required: bool) -> None:
    async def scenario() -> None:
        one, two = (Tls(kept(tmp_path, name, required=required)) for name in "ab")
        async with process("a", listens=True, tls=one) as a, process("b", tls=two) as b:
            link = await b.table.get(a.endpoint)
            link.send(report(1))
            await link.send_bulk(report(2, 100_000))
            await until(lambda: sorted(a.sink.numbers) == [1, 2])
            a.sink.ups[0].send(report(3))
            await until(lambda: b.sink.numbers == [3])

    run(scenario(), uvloop=uvloop)


def test_what_is_dialled_by_name_is_named_by_the_certificate(tmp_path: Path) -> None:
    async def scenario() -> None:
        tls = Tls(kept(tmp_path, "a"))
        async with process("a", listens=True, tls=tls) as a, process("b", tls=tls) as b:
            # An address behind the name, and the name in the certificate.
            link = await b.table.get(a.endpoint.replace("127.0.0.1", "localhost"))
            assert link.peer.process == "a"

    run(scenario())


Side = tuple[str, str, bool]
CASES: dict[str, tuple[Side | None, Side | None, str]] = {
    "plain to TLS": (None, ("server", "ca", False), tls_diagnosis.SPEAKS_TLS),
    "TLS to plain": (("server", "ca", False), None, tls_diagnosis.SPEAKS_PLAIN),
    "other authority": (
        ("stranger", "other-ca", False),
        ("server", "ca", False),
        "there is not trusted (unable",
    ),
    "other names": (("server", "ca", False), ("elsewhere", "ca", False), tls_diagnosis.OTHER_NAMES),
    "not let in": (
        ("server", "ca+other-ca", False),
        ("stranger", "other-ca", True),
        tls_diagnosis.NOT_LET_IN,
    ),
    "plain to TLS that wants a certificate": (None, ("server", "ca", True), tls_diagnosis.SPEAKS_TLS),
}


@both_loops
@pytest.mark.parametrize("case", CASES)
def test_what_does_not_fit_is_one_line(uvloop: bool, tmp_path: Path, case: str) -> None:
    async def scenario() -> None:
        caller, listener, words = CASES[case]
        tls = [
            None if side is None else Tls(kept(tmp_path, name, *side[:2], required=side[2]))
            for name, side in (("b", caller), ("a", listener))
        ]
        async with (
            process("a", listens=True, tls=tls[1]) as a,
            process("b", tls=tls[0], table_settings=NO_BACKOFF) as b,
        ):
            told = []
            for _ in range(3):
                with pytest.raises(LinkRefused) as error:
                    await b.table.get(a.endpoint)
                told.append(str(error.value))
            assert words in told[0] and told[0].startswith(f"{a.endpoint}: ")
            assert told == [told[0]] * 3, "who repeats it must see that it is nothing new"
            assert "\n" not in told[0]
            assert b.table.sockets == 0

    run(scenario(), uvloop=uvloop)


def test_a_certificate_that_has_ended_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        tls = Tls(kept(tmp_path, "a"))
        # As it would be for one that was in force when the daemon began.
        expired = {name: (KEPT / f"expired.{name}").read_bytes() for name in ("pem", "key")}
        old = Tls(kept(tmp_path, "old"))
        old._material = old._material._replace(certificate=expired["pem"], key=expired["key"])
        async with process("a", listens=True, tls=old) as a, process("b", tls=tls) as b:
            with pytest.raises(LinkRefused, match=f"^{a.endpoint}: .*not trusted .certificate has expired"):
                await b.table.get(a.endpoint)

    run(scenario())


def test_who_is_turned_away_for_want_of_room_is_not_told_of_tls(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            process("a", listens=True, connections_max=1) as a,
            process("b") as b,
            process("c", table_settings=NO_BACKOFF) as c,
        ):
            await b.table.get(a.endpoint)
            with pytest.raises(LinkUnreachable):
                await c.table.get(a.endpoint)

    run(scenario())


def test_a_daemon_that_speaks_tls_now_is_found(tmp_path: Path) -> None:
    async def scenario() -> None:
        tls = Tls(kept(tmp_path, "a"))
        async with process("b", tls=tls, table_settings=NO_BACKOFF) as b:
            async with process("a", listens=True, at=f"127.0.0.1:{free_port()}") as a:
                with pytest.raises(LinkRefused):
                    await b.table.get(a.endpoint)
            async with process("a2", listens=True, at=a.endpoint, tls=tls):
                link = await b.table.get(a.endpoint)
                assert link.peer.process == "a2"

    run(scenario())


@both_loops
def test_a_renewed_certificate_is_served_and_links_that_live_go_on(uvloop: bool, tmp_path: Path) -> None:
    async def scenario() -> None:
        passed_s = [0.0]
        files = kept(tmp_path, "a")
        served = Tls(files, wall_s=lambda: time.time() + 60, clock_s=lambda: passed_s[0])
        tls = Tls(kept(tmp_path, "b"))
        async with (
            process("a", listens=True, tls=served) as a,
            process("b", tls=tls) as b,
            process("c", tls=tls) as c,
        ):
            link = await b.table.get(a.endpoint)
            before = await shown_at(a.endpoint)
            replace_pair(tmp_path / "a", "stranger")
            passed_s[0] += LOOK_EVERY_S
            assert await shown_at(a.endpoint) == before
            replace_pair(tmp_path / "a", "renewed")
            passed_s[0] += LOOK_EVERY_S
            assert await shown_at(a.endpoint) > before
            await c.table.get(a.endpoint)
            assert not link.closed.is_set() and link.send(report(1))
            await until(lambda: a.sink.numbers == [1])

    run(scenario(), uvloop=uvloop)


def test_an_endpoint_is_asked_once_in_a_while(tmp_path: Path) -> None:
    async def scenario() -> None:
        asked = 0

        async def count(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal asked
            asked += 1
            writer.close()

        server = await asyncio.start_server(count, "127.0.0.1", 0)
        endpoint = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finder = tls_diagnosis.TlsDiagnosis(None)
        found = [await finder.find(endpoint, "UNAVAILABLE: Socket closed") for _ in range(5)]
        assert (found, asked) == ([""] * 5, 1)
        finder.forget(endpoint)
        assert await finder.find(endpoint, "UNAVAILABLE: Connection refused") == ""
        assert asked == 1
        server.close()
        await server.wait_closed()

    run(scenario())


def test_a_failed_dial_leaves_the_endpoint_alone_as_ever(tmp_path: Path) -> None:
    async def scenario() -> None:
        tls = Tls(kept(tmp_path, "a"))
        long = TableSettings(backoff_first_s=3600.0, backoff_max_s=3600.0)
        async with process("a", listens=True) as a, process("b", tls=tls, table_settings=long) as b:
            with pytest.raises(LinkRefused) as first:
                await b.table.get(a.endpoint)
            with pytest.raises(LinkError) as again:
                await b.table.get(a.endpoint)
            assert str(again.value) == str(first.value)
            assert b.table.counters.dials == 1

    run(scenario())
