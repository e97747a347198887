"""Prolog and epilog on the controller's host, as the core decides them: turns, launches, failures, new leaders."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from eslurm.api.infos import job_info
from eslurm.core.control.decide import decide
from eslurm.core.dispatch.local_programs import EndProgram, LocalPrograms, StartProgram
from eslurm.core.model import facts
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.controller_phases import ControllerPrograms, PhaseKey, PhaseStage
from eslurm.core.model.job import StepEnd
from eslurm.core.model.job_states import AttemptPhase, JobState
from eslurm.core.model.messages import (
    ConfigLoaded,
    ControllerPhaseDone,
    CreateStep,
    EpochStarted,
    JobRef,
    Refused,
    RequeueJobs,
    UpdateJob,
)
from eslurm.core.model.protocol import (
    GatewayReported,
    NodeGone,
    PhaseReported,
    Prepare,
    ReportBody,
    StepEnded,
)
from eslurm.core.model.request import Request
from eslurm.replay.state_check import check
from tests.kits.core import ALICE, ROOT, SECOND, World, depends
from tests.kits.packs import pack, place, placement

PROLOG, EPILOG = "/site/prolog", "/site/epilog"
BOTH = ControllerPrograms(PROLOG, EPILOG)
GOOD = StepEnd(0, started_us=1, ended_us=2)
BAD = StepEnd(3, text="no licence server")
TWO = Request(tasks=2, nodes_min=2, nodes_max=2, exclusive=True)


class Site(World):
    """A cluster whose controller has programs, and the host on which they run."""

    def __init__(self, programs: ControllerPrograms | None = BOTH, **kwargs: object) -> None:
        super().__init__(**{"nodes": 3, "phases": programs} | kwargs)  # type: ignore[arg-type]
        self.host = LocalPrograms(self.state)
        # It leads since before this host was looked at.
        self.host._epoch_before = 0

    def running(self) -> list[PhaseKey]:
        """The programs that are started now."""
        return [action.key for action in self.host.follow() if isinstance(action, StartProgram)]

    def over(self, key: PhaseKey, end: StepEnd = GOOD) -> None:
        self.send(ControllerPhaseDone(key, end))
        check(self.state)

    def placed(self, **fields: object) -> int:
        job_id = self.submit(**fields)  # type: ignore[arg-type]
        assert job_id in self.plan()
        return job_id

    def run(self, **fields: object) -> int:
        """A job whose prolog has ended well, and which runs."""
        job_id = self.placed(**fields)
        if self.state.phases_running:
            self.over(PhaseKey(job_id, self.job(job_id).attempts, "prolog", 1))
        self.deliver()
        self.deliver()
        assert self.job(job_id).state is JobState.RUNNING
        return job_id

    def stage(self, job_id: int) -> tuple[str, PhaseStage, int]:
        phase = self.attempt(job_id).controller
        assert phase is not None
        return phase.name, phase.stage, phase.run

    def text(self, job_id: int) -> str:
        return job_info(self.view, self.job(job_id), None).reason_text

    def lead_anew(self, config: ClusterConfig | None = None) -> None:
        """The leader dies with all that it runs; another one leads."""
        self.restart(epoch=False)
        self.host = LocalPrograms(self.state)
        if config is not None:
            self.send(ConfigLoaded(config))
        assert not self.host.follow(), "it does not lead yet"
        self.restart_epoch()

    def restart_epoch(self) -> None:
        self.send(EpochStarted(self.state.epoch + 1))
        for number in sorted(self.state.nodes):
            self.register(number, *self.inventory(number), session=f"s{self.state.epoch}")


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    check(made.state)


def test_a_cluster_without_programs_has_nothing_of_them() -> None:
    plain = Site(None)
    job_id = plain.submit()
    plain.start()
    assert plain.attempt(job_id).more is None and not plain.host.follow()
    assert not plain.state.phases_waiting and not plain.state.phases_running


def test_nothing_reaches_a_node_before_the_prolog_has_ended_well(site: Site) -> None:
    job_id = site.placed(request=TWO)
    assert not site.sends() and not site.state.owed
    (key,) = site.running()
    assert key == PhaseKey(job_id, 1, "prolog", 1) and not site.running(), "it is started once"
    site.now_us += 12_000_000
    site.pass_time(0)
    assert (
        site.text(job_id) == "controller prolog since 12 s" and site.job(job_id).state is JobState.LAUNCHING
    )
    for number in range(3):
        site.register(number, session="again")
    assert not site.sends(), "agents that register anew get nothing of it either"
    site.over(key)
    (send,) = site.sends()
    assert isinstance(send.body, Prepare) and len(send.nodes) == 2
    assert send.revision == site.attempt(job_id).placed_revision
    assert site.text(job_id) == ""


@pytest.mark.parametrize("is_good", [True, False])
@pytest.mark.parametrize("kind", [StepEnded, NodeGone, PhaseReported, GatewayReported])
def test_a_deposed_leader_takes_no_report_of_what_it_has_not_launched(
    site: Site, kind: type, is_good: bool
) -> None:
    """Another leader has launched the attempt since, and the report has come here all the same."""
    job_id = site.placed(request=TWO)
    before = site.attempt(job_id)
    about = (before.first, site.state.nodes[before.first].incarnation, job_id, 1)
    end = StepEnd(0 if is_good else 1)
    reports: list[ReportBody] = [
        StepEnded(*about, end, True),
        NodeGone(*about, end),
        PhaseReported(*about, "prolog", end),
        GatewayReported(*about, ()),
    ]
    (report,) = (one for one in reports if type(one) is kind)
    assert decide(site.state, report, site.now_us) == ([], None)


def test_the_time_limit_counts_from_the_script_s_start(site: Site) -> None:
    job_id = site.placed(time_limit_s=60)
    (key,) = site.running()
    site.now_us += 50_000_000
    site.over(key)
    site.deliver()
    attempt = site.attempt(job_id)
    assert attempt.until_us == attempt.started_us + 60_000_000 and attempt.started_us == site.now_us


def test_the_epilog_runs_when_the_nodes_are_free_and_the_end_is_final_after_it(site: Site) -> None:
    job_id = site.run()
    (key,) = site.running() or [PhaseKey(job_id, 1, "prolog", 1)]
    site.end(job_id, exit_code=3)
    job = site.job(job_id)
    assert job.state is JobState.COMPLETING and job.outcome is JobState.FAILED
    assert site.attempt(job_id).phase is AttemptPhase.SETTLING and not site.state.jobs_on
    assert not site.state.live, "plans do not count it"
    (key,) = site.running()
    assert key == PhaseKey(job_id, 1, "epilog", 1)
    other = site.placed(request=Request(tasks=3, nodes_min=3, nodes_max=3, exclusive=True))
    assert site.job(other).attempt is not None, "its nodes are others' already"
    site.over(key, BAD)
    assert site.job(job_id).state is JobState.FAILED and site.job(job_id).exit_code == 3
    site.over(key, GOOD)
    assert site.job(job_id).state is JobState.FAILED, "an end that is told twice changes nothing"


def test_a_prolog_that_fails_blames_no_node_and_the_job_is_held_in_the_end() -> None:
    site = Site(ControllerPrograms(PROLOG), launch_failures_max=3, requeue_delay_s=4.0)
    job_id = site.placed()
    pauses = []
    for number in (1, 2, 3):
        site.over(PhaseKey(job_id, number, "prolog", 1), BAD)
        job = site.job(job_id)
        assert job.state is JobState.PENDING and job.launch_failures == number and not job.avoid
        assert not site.state.jobs_on and not site.sends()
        if number < 3:
            pauses.append((job.not_before_us - site.now_us) // 1_000_000)
            site.pass_time(pauses[-1])
            assert job_id in site.plan()
    assert pauses == [4, 8]
    job = site.job(job_id)
    assert (
        job.hold == "system"
        and "its controller prolog failed: exit code 3: no licence server" in job.reason_text
    )
    assert not any(node.drain or node.faults for node in site.state.nodes.values())


def test_after_a_failed_prolog_the_epilog_runs_before_the_job_waits_again(site: Site) -> None:
    job_id = site.placed()
    (key,) = site.running()
    site.over(key, BAD)
    assert site.job(job_id).state is JobState.COMPLETING and site.job(job_id).outcome is JobState.PENDING
    (epilog,) = site.running()
    assert epilog == PhaseKey(job_id, 1, "epilog", 1)
    assert not site.plan()
    site.over(epilog)
    assert site.job(job_id).state is JobState.PENDING
    site.pass_time(5)
    assert site.plan() == [job_id]
    assert site.running() == [PhaseKey(job_id, 2, "prolog", 1)], "each attempt has its own"


def test_a_job_that_is_cancelled_in_its_prolog_ends_it_and_its_epilog_follows(site: Site) -> None:
    job_id = site.placed()
    (key,) = site.running()
    site.cancel(job_id)
    assert site.stage(job_id) == ("prolog", PhaseStage.ENDING, 1) and not site.state.jobs_on
    assert site.host.follow() == [EndProgram(key)] and not site.host.follow()
    assert "told to end" in site.text(job_id)
    site.over(key, StepEnd(0, 15, "cancelled"))
    (epilog,) = site.running()
    site.over(epilog)
    assert site.job(job_id).state is JobState.CANCELLED and not site.sends()
    assert site.job(job_id).launch_failures == 0


def test_a_job_whose_prolog_has_not_begun_is_cancelled_at_once() -> None:
    site = Site(ControllerPrograms(PROLOG, EPILOG, running_max=1))
    first, second = site.placed(), site.placed()
    assert site.running() == [PhaseKey(first, 1, "prolog", 1)]
    assert site.text(second) == "controller prolog waits for its turn"
    site.cancel(second)
    assert site.job(second).state is JobState.CANCELLED and not site.running()


def test_so_many_run_at_once_and_the_others_wait_in_their_order() -> None:
    site = Site(ControllerPrograms(PROLOG, running_max=2), nodes=8)
    jobs = [site.placed() for _ in range(5)]
    began = []
    while running := site.running():
        began += [key.job_id for key in running]
        assert len(site.state.phases_running) <= 2
        site.over(running[0])
        if len(running) > 1:
            site.over(running[1])
    assert began == jobs


def test_a_new_leader_runs_again_what_had_begun_and_says_so(site: Site) -> None:
    job_id = site.placed()
    (key,) = site.running()
    site.lead_anew()
    (again,) = site.running()
    assert again == PhaseKey(job_id, 1, "prolog", 2)
    assert "run 2: the leader has changed" in site.text(job_id)
    site.over(key)
    assert site.stage(job_id) == ("prolog", PhaseStage.RUNNING, 2), (
        "the end of the earlier run is none of this one"
    )
    assert not site.sends()
    site.over(again)
    site.deliver()
    assert site.job(job_id).state is JobState.RUNNING
    site.end(job_id)
    site.running()
    site.lead_anew()
    (epilog,) = site.running()
    assert epilog == PhaseKey(job_id, 1, "epilog", 2)
    site.over(epilog)
    assert site.job(job_id).state is JobState.COMPLETED


def test_a_new_leader_takes_a_prolog_that_was_being_ended_for_gone(site: Site) -> None:
    job_id = site.placed()
    site.running()
    site.cancel(job_id)
    site.lead_anew()
    assert site.running() == [PhaseKey(job_id, 1, "epilog", 1)]


def test_a_program_that_is_configured_no_more_keeps_no_job_waiting(site: Site) -> None:
    first = site.run()
    site.end(first)
    second = site.placed()
    site.lead_anew(ClusterConfig("test", site.state.config.nodes, site.state.config.partitions))
    assert site.job(first).state is JobState.COMPLETED
    site.deliver()
    assert site.job(second).state is JobState.RUNNING


def test_a_program_that_was_ended_before_it_was_started_is_told_as_well(site: Site) -> None:
    job_id = site.placed()
    site.cancel(job_id)
    assert site.host.follow() == [EndProgram(PhaseKey(job_id, 1, "prolog", 1))]


def test_a_node_that_is_lost_or_booted_in_the_prolog_takes_nothing_with_it(site: Site) -> None:
    job_id = site.placed()
    (key,) = site.running()
    first = site.attempt(job_id).first
    site.register(first, session="booted", boot="b2")
    assert site.attempt(job_id).number == 1, "nothing of it had been there"
    site.lose(first)
    job = site.job(job_id)
    assert job.outcome is JobState.PENDING and first in job.avoid and not site.state.jobs_on
    assert site.host.follow() == [EndProgram(key)]
    site.over(key, StepEnd(0, 15, "cancelled"))
    site.over(site.running()[0])
    assert site.job(job_id).state is JobState.PENDING


def test_no_step_starts_in_the_prolog(site: Site) -> None:
    job_id = site.placed()
    answer = site.send(CreateStep(ALICE, job_id, 1, 1, ("true",), b"e" * 32, "/", "10.0.0.1:1", b"c" * 32))
    assert isinstance(answer, Refused) and "being prepared" in answer.text


def test_a_requeued_job_and_the_tasks_of_an_array_have_their_own(site: Site) -> None:
    job_id = site.run()
    site.running()
    site.requeue(job_id)
    site.deliver()
    site.end(job_id)
    (epilog,) = site.running()
    assert epilog == PhaseKey(job_id, 1, "epilog", 1) and site.job(job_id).outcome is JobState.PENDING
    site.cancel(job_id)
    assert site.job(job_id).outcome is JobState.CANCELLED and site.job(job_id).state is JobState.COMPLETING
    site.over(epilog)
    assert site.job(job_id).state is JobState.CANCELLED
    array = site.submit(tasks=((0, 1),), limit=1)
    (task,) = site.plan()
    site.over(PhaseKey(task, 1, "prolog", 1))
    site.deliver()
    site.end(task)
    assert not site.plan(), "its task runs until its epilog has ended"
    site.over(PhaseKey(task, 1, "epilog", 1))
    assert len(site.plan()) == 1 and site.job(array).tasks_ok == ((0, 0),)


def test_an_epilog_alone_runs_for_what_was_launched() -> None:
    site = Site(ControllerPrograms(epilog=EPILOG))
    job_id = site.run()
    site.end(job_id)
    (key,) = site.running()
    assert key.phase == "epilog"
    site.over(key)
    assert site.job(job_id).state is JobState.COMPLETED


def test_the_log_says_each_run_once(site: Site) -> None:
    job_id = site.run()
    site.end(job_id)
    site.over(PhaseKey(job_id, 1, "epilog", 1))
    told = [
        fact for fact in site.log if isinstance(fact, facts.ControllerPhaseBegan | facts.ControllerPhaseEnded)
    ]
    assert [(type(fact).__name__, fact.phase, fact.run) for fact in told] == [
        ("ControllerPhaseBegan", "prolog", 1),
        ("ControllerPhaseEnded", "prolog", 1),
        ("ControllerPhaseBegan", "epilog", 1),
        ("ControllerPhaseEnded", "epilog", 1),
    ]


def test_plans_count_on_the_prolog_that_jobs_wait_for() -> None:
    site = Site(ControllerPrograms(PROLOG), nodes=2)
    for _ in range(2):
        job_id = site.placed(time_limit_s=60)
        site.pass_time(20)
        site.over(PhaseKey(job_id, 1, "prolog", 1))
    waiting = site.submit(time_limit_s=60, held=True)
    site.hold(waiting, release=True)
    assert site.state.phases_us == 20_000_000
    entry = site.state.queue.find(waiting)
    assert entry is not None and entry.stay_us == 80_000_000
    assert waiting in site.plan()
    running = site.state.live[waiting, 1]
    assert running.expected_us == site.now_us + 80_000_000 and running.until_us == site.now_us + 60_000_000
    # A site that has none any more waits for none.
    site.submit(time_limit_s=60)
    site.send(ConfigLoaded(msgspec.structs.replace(site.state.config, phases=None)))
    check(site.state)
    assert site.state.phases_us == 0


def test_jobs_of_a_pack_that_follow_each_other_are_not_kept_apart_by_what_phases_may_take() -> None:
    """Goal: a pack that is accepted by its time limits has a place in the plan."""
    site = Site(ControllerPrograms(PROLOG), nodes=2)
    for _ in range(2):
        job_id = site.placed(time_limit_s=60)
        site.pass_time(20)
        site.over(PhaseKey(job_id, 1, "prolog", 1))
    assert site.state.phases_us == 20_000_000
    # Of 100 s each: the second begins as the first ends, the third 5 s after that.
    first, second, _third = pack(site, 0, 100, 205)
    entry = site.state.queue.find(first)
    assert entry is not None
    assert [one.stay_us for one in entry.members] == [100_000_000, 105_000_000, 120_000_000]
    site.send(UpdateJob(ALICE, JobRef(second), time_limit_s=90))
    entry = site.state.queue.find(first)
    assert entry is not None
    assert [one.stay_us for one in entry.members] == [100_000_000, 105_000_000, 120_000_000]
    assert [one.time_limit_us for one in entry.members] == [100_000_000, 90_000_000, 100_000_000]


def test_no_other_job_of_a_pack_begins_while_its_first_one_comes_back_from_its_prolog(site: Site) -> None:
    first, second = pack(site, 0, 5)
    assert place(site, placement(site, first, 0, begins=True)) == [first]
    site.over(PhaseKey(first, 1, "prolog", 1), BAD)
    assert site.attempt(first).phase is AttemptPhase.SETTLING
    site.pass_time(6)
    assert not place(site, placement(site, second, 1))
    site.over(PhaseKey(first, 1, "epilog", 1))
    for job_id in (first, second):
        place_of = site.job(job_id).pack
        assert place_of is not None and not place_of.anchor_us and site.job(job_id).state is JobState.PENDING
    assert place(site, placement(site, first, 0, begins=True)) == [first], "the pack begins anew"


def test_the_first_job_of_a_pack_does_not_begin_alone_while_another_one_comes_back(site: Site) -> None:
    first, second = pack(site, 0, 5)
    assert place(site, placement(site, first, 0, begins=True)) == [first]
    site.over(PhaseKey(first, 1, "prolog", 1))
    site.pass_time(5)
    assert place(site, placement(site, second, 1)) == [second]
    site.over(PhaseKey(second, 1, "prolog", 1))
    for _ in range(2):
        site.deliver()
    site.send(RequeueJobs(ROOT, (JobRef(first), JobRef(second))))
    for job_id in (first, second):
        site.end(job_id, 15)
    site.over(PhaseKey(first, 1, "epilog", 1))
    site.pass_time(60)
    assert site.job(first).state is JobState.PENDING
    assert site.attempt(second).phase is AttemptPhase.SETTLING
    assert not place(site, placement(site, first, 0))
    site.over(PhaseKey(second, 1, "epilog", 1))
    for job_id in (first, second):
        place_of = site.job(job_id).pack
        assert place_of is not None and not place_of.anchor_us
    assert place(site, placement(site, first, 0, begins=True)) == [first], "the pack begins anew"


def test_a_lost_node_of_two_jobs_of_a_pack_ends_one_whose_prolog_runs_once(site: Site) -> None:
    """The second one is requeued with the first one's end, before the message comes to it."""
    first, second = pack(site, 0, 0)
    assert place(site, placement(site, first, 0, begins=True), placement(site, second, 0)) == [first, second]
    site.over(PhaseKey(first, 1, "prolog", 1))
    at = len(site.log)
    site.lose(0)
    assert site.kinds(at).count("AttemptEnded") == 2
    assert site.stage(second) == ("prolog", PhaseStage.ENDING, 1)
    site.over(PhaseKey(second, 1, "prolog", 1), BAD)
    assert all(site.stage(job_id)[0] == "epilog" for job_id in (first, second))


def test_a_delay_behind_a_job_that_waits_again_counts_from_its_cancellation() -> None:
    """Goal: not from the end of the attempt that its epilog still cleans up behind."""
    world = Site()
    first = world.placed(request=TWO)
    second = world.submit(dependencies=depends("after", first, 60))
    world.over(PhaseKey(first, 1, "prolog", 1))
    (prepare,) = world.sends()
    world.done(prepare, "failed")
    assert world.state_of(first) == "COMPLETING" and not world.job(first).started_us
    world.pass_time(10)
    world.cancel(first)
    cancelled_us = world.now_us
    world.pass_time(5)
    world.over(PhaseKey(first, 1, "epilog", 1))
    assert world.state_of(first) == "CANCELLED" and world.job(first).ended_us == cancelled_us
    assert world.job(second).not_before_us == cancelled_us + 60 * SECOND
