"""Estimators at a real controller: the feed, forecasts sent back, and where they show; over the socket and over gRPC."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from eslurm.api.grpc_client import GrpcClient
from eslurm.api.methods import BY_NAME, JOB_FEED
from eslurm.v1 import controller_pb2 as pb
from tests.kits.cluster import LiveCluster
from tests.kits.daemons import PATIENCE_S

FORECAST = pb.Forecast(p10_s=60, p50_s=120, p90_s=240, estimate_s=150)


class Follower:
    """Reads the feed through the controller's socket."""

    def __init__(self, cluster: LiveCluster) -> None:
        self.cluster = cluster
        self.cursor = 0
        self.begun = 0
        self.heard: dict[int, list[pb.JobEvent]] = {}

    def read(self, wait_ms: int = 0) -> None:
        request = pb.JobFeedRequest(cursor=self.cursor, wait_ms=wait_ms)
        reply = self.cluster.call("JobFeed", request)
        if reply.from_start:
            self.begun += 1
            self.heard.clear()
        for event in reply.events:
            self.heard.setdefault(event.job_id, []).append(event)
        self.cursor = reply.next

    def until(self, job_id: int, *kinds: pb.JobEvent.Kind) -> pb.JobEvent:
        """Read on until that was told of the job, in this order; the last of it. More may have been told already."""
        deadline_s = time.monotonic() + PATIENCE_S
        while len(self.heard.get(job_id, ())) < len(kinds):
            assert time.monotonic() < deadline_s, self.heard.get(job_id)
            self.read(wait_ms=500)
        assert [event.kind for event in self.heard[job_id]][: len(kinds)] == list(kinds)
        return self.heard[job_id][len(kinds) - 1]


def foretell(cluster: LiveCluster, job_id: int, forecast: pb.Forecast = FORECAST) -> int:
    said = pb.JobForecast(job_id=job_id, forecast=forecast)
    reply = cluster.call("SetForecasts", pb.SetForecastsRequest(forecasts=[said], model="test-1"))
    return int(reply.count)


def test_what_is_submitted_is_told_and_what_is_said_of_it_shows(cluster: LiveCluster) -> None:
    follower = Follower(cluster)
    follower.read()
    whole = str(len(cluster.nodes()))
    first = cluster.wrap("sleep 600", "-N", whole, "--exclusive", "-t", "30", "-J", "first")
    told = follower.until(first, pb.JobEvent.SUBMITTED)
    assert (told.job.name, told.job.limit_s, told.job.nodes) == ("first", 1800, int(whole))
    assert foretell(cluster, first) == 1 and foretell(cluster, first) == 0
    follower.until(first, pb.JobEvent.SUBMITTED, pb.JobEvent.STARTED)
    second = cluster.wrap("true", "-N", "2", "-t", "10")
    follower.until(second, pb.JobEvent.SUBMITTED)
    assert foretell(cluster, second) == 1

    shown = cluster.job(second)
    assert (shown.forecast, shown.first_estimate_s) == (FORECAST, 150)
    assert cluster.run("esqueue", "-h", "-j", str(second), "-o", "%X").out.strip() == "2:30"
    found = json.loads(cluster.run("eswhy", "--json", str(second)).out)
    assert found["planned_start_us"] > found["now_us"]
    assert found["job"]["forecast"]["p90_s"] == 240
    assert "Expected to run 2 min 30 s" in cluster.run("eswhy", str(second)).out

    cluster.do("esctl", "update", "job", str(first), "time=20")
    running = (pb.JobEvent.SUBMITTED, pb.JobEvent.STARTED, pb.JobEvent.CHANGED)
    assert follower.until(first, *running).job.limit_s == 1200
    cluster.do("escancel", str(first))
    ended = follower.until(first, *running, pb.JobEvent.ENDED)
    assert ended.runtime_s >= 1
    assert len(follower.heard[first]) == 4
    assert cluster.end(second) == "COMPLETED"
    run = cluster.only_run(second)
    assert (run.first_estimate_s, run.forecast, run.time_limit_s) == (150, FORECAST, 600)
    assert foretell(cluster, second) == 0
    assert follower.begun == 1


def test_who_comes_later_is_told_of_those_that_ended(cluster: LiveCluster) -> None:
    job = cluster.wrap("sleep 1", "-J", "past")
    assert cluster.end(job) == "COMPLETED"
    follower = Follower(cluster)
    ended = follower.until(job, pb.JobEvent.SUBMITTED, pb.JobEvent.STARTED, pb.JobEvent.ENDED)
    assert follower.begun == 1 and ended.runtime_s >= 1
    assert follower.heard[job][0].job.name == "past"


def test_nonsense_is_refused(cluster: LiveCluster) -> None:
    job = cluster.wrap("true", "--hold")
    with pytest.raises(Exception, match="three that do not fall"):
        foretell(cluster, job, pb.Forecast(p10_s=9, p50_s=5, p90_s=7, estimate_s=5))
    with pytest.raises(Exception, match="P10 0 s"):
        foretell(cluster, job, pb.Forecast())


def test_the_feed_over_grpc_is_for_operators_and_estimators(cluster: LiveCluster) -> None:
    def ask(scope: str, user: str = "nobody") -> pb.JobFeedReply:
        with GrpcClient(cluster.endpoint, cluster.token(scope, user)) as client:
            reply: pb.JobFeedReply = client.call(JOB_FEED, pb.JobFeedRequest(), PATIENCE_S)
            return reply

    assert ask("estimator").from_start
    with pytest.raises(Exception, match="JobFeed is for operators"):
        ask("admin")
    with pytest.raises(Exception, match="JobFeed is beyond a token of scope submit"):
        ask("submit")
    with (
        GrpcClient(cluster.endpoint, cluster.token("estimator", "nobody")) as client,
        pytest.raises(Exception, match="Jobs is beyond a token of scope estimator"),
    ):
        client.call(BY_NAME["Jobs"], pb.JobsRequest(), PATIENCE_S)


def test_a_waiting_follower_hears_that_the_controller_stops(broken: LiveCluster) -> None:
    follower = Follower(broken)
    follower.read()
    while True:
        before = follower.cursor
        follower.read()
        if follower.cursor == before:
            break
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(follower.read, 30_000)
        broken.terminate("esctld")
        broken.launch("esctld")
        # The call is tried again at the next one, which knows nothing of this follower.
        waiting.result(PATIENCE_S)
    assert follower.begun == 2
