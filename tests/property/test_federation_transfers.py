"""Jobs that change their cell, whatever crashes, is lost or comes late: never two cells may start one, each ends once and
its home tells that end, and no record is left in the store.
"""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from eslurm.core.model.job_states import FINAL
from eslurm.core.model.messages import CancelJobs, HoldJobs, JobRef, Submitted
from eslurm.lab.kv.image import KvImage
from tests.kits.core import ALICE
from tests.kits.federation import KEYS, LEASE_S, held
from tests.kits.transfers import CallNetwork, Cluster, is_foreign, may_start

NAMES = ("alpha", "beta", "gamma")
JOBS_MAX = 40


class Watch:
    """The runs of jobs, by cells."""

    def __init__(self, clusters: dict[str, Cluster]) -> None:
        self.clusters = clusters
        self.ran: dict[int, str] = {}
        self.ends: dict[int, str] = {}

    def look(self) -> None:
        """Raises AssertionError."""
        owners: Counter[int] = Counter()
        for name, cluster in self.clusters.items():
            for job_id, job in cluster.jobs.items():
                owners[job_id] += may_start(job)
                if job.attempts:
                    assert self.ran.setdefault(job_id, name) == name, (
                        f"{job_id} ran in {name} and {self.ran[job_id]}"
                    )
                if job.attempts and job.state in FINAL and self.ran[job_id] == name:
                    self.ends[job_id] = job.state.value
        twice = [job_id for job_id, count in owners.items() if count > 1]
        assert not twice, f"two cells may start {twice}"


def step(
    network: CallNetwork, clusters: dict[str, Cluster], draws: random.Random, homes: dict[int, str]
) -> None:
    network.step()
    roll = draws.random()
    cluster = clusters[draws.choice(NAMES)]
    if roll < 0.3:
        for controller in network.controllers:
            controller.commit()
    elif roll < 0.38 and len(homes) < JOBS_MAX and cluster.world.state.id_blocks:
        answer = cluster.world.try_submit(cells=draws.choice((("any",), (), ("beta", "gamma"))))
        if isinstance(answer, Submitted):
            homes[answer.job_ids[0]] = cluster.name
    elif roll < 0.40:
        cluster.run(draws, 0.1)
    elif roll < 0.405:
        # The leader dies, or only stands still and goes on later: another leads.
        if draws.random() < 0.6 and cluster.leader in network.controllers:
            network.stop(cluster.leader)
        network.controllers.append(cluster.lead())
    elif roll < 0.407:
        network.image.compact(network.image.revision)
    elif roll < 0.408:
        network.advance(int(LEASE_S * 1.5e6))
    elif roll < 0.41:
        network.away_until_us = network.now_us + draws.randint(1, 15) * 1_000_000
    elif roll < 0.42 and homes:
        job_id = draws.choice(list(homes))
        clusters[homes[job_id]].send(CancelJobs(ALICE, (JobRef(job_id),)))
    elif roll < 0.43 and homes:
        job_id = draws.choice(list(homes))
        clusters[homes[job_id]].send(HoldJobs(ALICE, (JobRef(job_id),), draws.random() < 0.5))


def calm(network: CallNetwork, clusters: dict[str, Cluster], draws: random.Random, watch: Watch) -> None:
    """Let everything end."""
    network.away_until_us = 0
    for cluster in clusters.values():
        for job_id, job in list(cluster.jobs.items()):
            if job.hold:
                cluster.send(HoldJobs(ALICE, (JobRef(job_id),), True))
    for _ in range(120):
        network.settle(0.5)
        for controller in network.controllers:
            controller.commit()
        for cluster in clusters.values():
            if draws.random() < 0.3:
                cluster.run(draws)
        watch.look()


# A smaller seed is no simpler world: nothing is shrunk.
@settings(max_examples=12, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(seed=st.integers(0, 2**32 - 1))
def test_each_job_has_one_owner_and_one_end(seed: int) -> None:
    draws = random.Random(seed)
    clusters = {name: Cluster(name) for name in NAMES}
    network = CallNetwork(KvImage(), draws, clusters)
    network.controllers += [cluster.lead() for cluster in clusters.values()]
    for _ in range(6):
        network.settle(0.5)
        for controller in network.controllers:
            controller.commit()
    network.faults = 0.2
    watch, homes = Watch(clusters), dict[int, str]()
    for _ in range(draws.randint(500, 2_500)):
        step(network, clusters, draws, homes)
        watch.look()
    calm(network, clusters, draws, watch)
    for job_id, home in homes.items():
        job = clusters[home].jobs[job_id]
        assert job.state in FINAL, f"job {job_id} of {home}: {job.state} {job.transfer}"
        if job_id in watch.ends:
            assert job.state.value == watch.ends[job_id], f"job {job_id} of {home}: {job.state}"
    for cluster in clusters.values():
        for job_id, job in cluster.jobs.items():
            assert not is_foreign(job) or not job.owes_outcome, (
                f"job {job_id} in {cluster.name}: {job.transfer}"
            )
        assert cluster.leader is not None and not cluster.leader.transfers.problem
    left = [key for key in held(network.image, KEYS.jobs) if not key.endswith("+withdrawals")]
    assert not left, left
