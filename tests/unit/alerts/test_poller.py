"""The poller's reading of answers and of their absence. Method: `get` is replaced, time is a variable."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec
import pytest

from eslurm.alerts import prometheus
from eslurm.alerts.http import FetchError, Target
from eslurm.alerts.prometheus import PrometheusOptions, PrometheusPoller
from eslurm.alerts.updates import AlertUpdate, Firing
from tests.support.loops import run

URL = "http://mon:9090"


class Server:
    """Stands for `http.get`: gives `body`, or raises `trouble`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.body = b""
        self.trouble = ""
        self.paths: list[str] = []
        self.now_s = 1000.0
        self.updates: list[AlertUpdate] = []
        monkeypatch.setattr(prometheus, "get", self.get)

    async def get(self, target: Target, timeout_s: float, body_bytes_max: int) -> bytes:
        self.paths.append(target.path)
        if self.trouble:
            raise FetchError(self.trouble)
        return self.body

    def poller(self, **options: object) -> PrometheusPoller:
        return PrometheusPoller(
            msgspec.convert({"url": URL, **options}, PrometheusOptions),
            self.updates.append,
            lambda: self.now_s,
        )

    def ask(self, poller: PrometheusPoller) -> None:
        run(poller.ask())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


def alerts(*found: tuple[str, dict[str, str]]) -> bytes:
    rows = [
        {"labels": labels, "state": state, "annotations": {}, "value": "1e+00"} for state, labels in found
    ]
    return msgspec.json.encode({"status": "success", "data": {"alerts": rows}})


def vector(*metrics: dict[str, str], kind: str = "vector") -> bytes:
    rows = [{"metric": metric, "value": [1.5, "0"]} for metric in metrics]
    return msgspec.json.encode({"status": "success", "data": {"resultType": kind, "result": rows}})


HOT = {"alertname": "Hot", "node": "cn0007", "rack": "1"}


def test_firing_alerts_are_delivered_once_each_and_pending_ones_only_when_asked(server: Server) -> None:
    server.body = alerts(
        ("firing", HOT),
        ("firing", HOT | {"rack": "2"}),
        ("firing", HOT | {"alertname": "Ecc"}),
        ("pending", HOT | {"node": "cn0008"}),
        ("firing", {"alertname": "DeadMansSwitch"}),
    )
    poller = server.poller()
    server.ask(poller)
    assert server.updates == [Firing("prometheus", (("Hot/cn0007", "cn0007"), ("Ecc/cn0007", "cn0007")))]
    assert server.paths == ["/api/v1/alerts"]
    assert (poller.status.state, poller.status.firing, poller.status.unnamed) == ("answering", 2, 1)
    asks_all = server.poller(pending=True)
    server.ask(asks_all)
    assert asks_all.status.firing == 3


def test_a_query_counts_each_of_its_series(server: Server) -> None:
    server.body = vector({"instance": "cn0001:9100"}, {"instance": "cn0002:9100"}, {})
    poller = server.poller(url=f"{URL}/prom/", query="up == 0", node_label="instance")
    server.ask(poller)
    keys = (("prometheus/cn0001", "cn0001"), ("prometheus/cn0002", "cn0002"))
    assert server.updates == [Firing("prometheus", keys)]
    assert server.paths == ["/prom/api/v1/query?query=up%20%3D%3D%200"]
    assert poller.status.unnamed == 1


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "no answer of Prometheus"),
        (b"<html>", "no answer of Prometheus"),
        (b"\xff\xfe", "no answer of Prometheus"),
        (b"null", "no answer of Prometheus"),
        (b'{"status":"error","error":"x"}', "status 'error'"),
        (b'{"status":"success"}', "no answer of Prometheus"),
        (b'{"status":"success","data":{"alerts":[7]}}', "no answer of Prometheus"),
        (b'{"status":"success","data":{"alerts":[{"labels":{"node":7},"state":"firing"}]}}', "no answer"),
        (b'{"status":"success","data":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "no answer of Prometheus"),
    ],
)
def test_garbage_changes_nothing_that_was_known(server: Server, body: bytes, why: str) -> None:
    poller = server.poller()
    server.body = alerts(("firing", HOT))
    server.ask(poller)
    server.body = body
    server.ask(poller)
    assert len(server.updates) == 1
    assert (poller.status.state, poller.status.failures, poller.status.firing) == ("failing", 1, 1)
    assert why in poller.status.why


def test_an_expression_that_yields_no_vector_is_told(server: Server) -> None:
    server.body = msgspec.json.encode(
        {"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}}
    )
    poller = server.poller(query="1")
    server.ask(poller)
    assert "yields a scalar, not a vector" in poller.status.why


def test_the_last_answer_holds_until_it_is_stale_with_one_line_per_change(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "eslurm.alerts")
    poller = server.poller(stale_after_s=60.0)
    server.body = alerts(("firing", HOT))
    server.ask(poller)
    server.trouble = "Connection refused"
    for _ in range(5):
        server.now_s += 10.0
        server.ask(poller)
    assert len(server.updates) == 1
    for _ in range(5):
        server.now_s += 10.0
        server.ask(poller)
    assert server.updates[1:] == [Firing("prometheus", ())]
    assert (poller.status.state, poller.status.firing, poller.age_s) == ("stale", 0, 100.0)
    server.trouble = ""
    server.ask(poller)
    server.ask(poller)
    assert [len(update.alerts) for update in server.updates if isinstance(update, Firing)] == [1, 0, 1, 1]
    assert [record.getMessage() for record in caplog.records if record.name.startswith("eslurm.")] == [
        "http://mon:9090: Connection refused; its last answer holds for 60 s",
        "http://mon:9090: Connection refused; its last answer is too old: none of its alerts counts",
        "http://mon:9090 answers again",
    ]


def test_a_source_that_never_answered_is_told_once(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    poller = server.poller()
    server.trouble = "Connection refused"
    for _ in range(3):
        server.ask(poller)
    assert len([record for record in caplog.records if record.name.startswith("eslurm.")]) == 1
    assert server.updates == []


def test_a_receiver_that_raises_does_not_end_the_polling(server: Server) -> None:
    broken: Callable[[AlertUpdate], None] = {}.__getitem__  # type: ignore[assignment]
    poller = PrometheusPoller(PrometheusOptions(URL), broken)
    server.body = alerts(("firing", HOT))
    server.ask(poller)
    assert "cannot be used" in poller.status.why


@pytest.mark.parametrize("url", ["mon:9090", "http://mon:9090/?query=up"])
def test_a_wrong_address_is_refused_at_the_start(server: Server, url: str) -> None:
    with pytest.raises(ValueError, match="mon:9090"):
        server.poller(url=url)
