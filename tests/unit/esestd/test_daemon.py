"""`esestd` against a controller behind real doors: forecasts come, errors cost forecasts only, lessons run beside it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from esestd import daemon as daemon_module
from esestd import follower as follower_module
from esestd import forecaster as forecaster_module
from esestd import sender as sender_module
from esestd.daemon import EstimatorDaemon, EstimatorOptions
from eslurm.api.authoriser import Authoriser
from eslurm.api.grpc_server import door_handler
from eslurm.api.interceptor import Interceptor
from eslurm.api.server import RpcServer
from eslurm.core.control.rights import Level
from eslurm.estimator.files import ModelFiles, read_kept
from eslurm.ports.api import ApiError, Status
from eslurm.ports.estimator import Estimator, Model
from eslurm.telemetry.clocks import wall_us
from eslurm.transport.options import DOOR_MESSAGE_BYTES_MAX
from tests.kits.api import ALICE, calls_ending
from tests.kits.api_tokens import Office
from tests.kits.esestd import (
    UNAVAILABLE,
    Controller,
    Pupil,
    changed,
    ended,
    model_of,
    now_s,
    requeued,
    started,
    submitted,
    unix_door,
    until,
    whole_run,
)
from tests.support.loops import both_loops, run


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that happens now and then happens often."""
    monkeypatch.setattr(daemon_module, "TICK_S", 0.01)
    monkeypatch.setattr(follower_module, "AGAIN_S", 0.01)
    monkeypatch.setattr(follower_module, "REFUSED_S", 0.02)
    monkeypatch.setattr(sender_module, "AGAIN_S", 0.01)


def hasten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon's clock goes fifty times as fast."""
    began_us = wall_us()
    monkeypatch.setattr(daemon_module, "wall_us", lambda: began_us + 50 * (wall_us() - began_us))


def options(directory: Path, *sockets: Path, **fields: Any) -> EstimatorOptions:
    return EstimatorOptions(
        "test",
        fields.pop("estimator", "pupil"),
        {},
        directory / "esestd",
        tuple(str(path) for path in sockets),
        **({"poll_s": 0.05} | fields),
    )


@asynccontextmanager
async def living(
    told: EstimatorOptions, factory: Callable[[], Estimator] | None = None
) -> AsyncIterator[EstimatorDaemon]:
    """A daemon that runs while the test looks on."""
    one = EstimatorDaemon(told, factory)
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(one.run(ready))
    await asyncio.wait({ready, task}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield one
    finally:
        one.stop()
        await task


def estimates(controller: Controller) -> dict[int, int]:
    return {job_id: one.estimate_s for job_id, one in controller.forecasts.items()}


class Class:
    """Makes pupils, and remembers them."""

    def __init__(self, *models: Model) -> None:
        self.pupils: list[Pupil] = []
        self.prepare: Callable[[Pupil], None] = lambda _pupil: None

    def __call__(self) -> Pupil:
        pupil = Pupil()
        self.prepare(pupil)
        self.pupils.append(pupil)
        return pupil

    @property
    def last(self) -> Pupil:
        return self.pupils[-1]


@both_loops
def test_forecasts_come_from_what_ended(state_dir: Path, uvloop: bool) -> None:
    async def scenario() -> None:
        controller, socket = Controller(), state_dir / "door"
        start_s = now_s() - 10_000
        controller.events = [
            *whole_run(1, start_s, 600),
            *whole_run(2, start_s + 700, 800),
            submitted(3, start_s + 2000),
        ]
        async with (
            unix_door(controller, socket),
            living(options(state_dir, socket, estimator="last-2")),
        ):
            await until(lambda: 3 in controller.forecasts)
            assert estimates(controller) == {3: 700}
            controller.tell(submitted(4, now_s()), submitted(5, now_s(), user="bob", limit_s=60))
            await until(lambda: 5 in controller.forecasts)
            assert estimates(controller) == {3: 700, 4: 700, 5: 60}
            # All questions of one part of the feed went in one message.
            assert [len(one.forecasts) for one in controller.sent] == [1, 2]
            assert {one.model for one in controller.sent} == {"last-2"}

    run(scenario(), uvloop=uvloop)


def test_over_grpc_with_a_token(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_module, "ANSWER_S", 3600.0)

    async def scenario() -> None:
        controller = Controller()
        office = Office()
        path = state_dir / "token"
        who, now_us = msgspec.structs.replace(ALICE, uid=4002), wall_us()
        path.write_text(office.token(now_us + 600_000_000, who, "estimator", now_us) + "\n")
        path.chmod(0o600)
        authenticator = office.authenticator(wall_us)
        gate = Authoriser(
            controller, lambda principal: Level.OPERATOR if principal.uid == 4001 else Level.USER
        )
        server = RpcServer(
            [door_handler(gate)], Interceptor(authenticator), message_bytes_max=DOOR_MESSAGE_BYTES_MAX
        )
        endpoint = await server.listen("127.0.0.1:0")
        await server.start()
        controller.events = [submitted(1, now_s(), limit_s=50)]
        told = options(state_dir, estimator="user", controllers=("127.0.0.1:1", endpoint), token_file=path)
        async with living(told) as one:
            await until(lambda: estimates(controller) == {1: 50})
            await server.stop(0.5)
            # Nobody is there: that is known at once, and not after all the time that a call may take.
            await until(lambda: metric(one, "eslurm_estimator_linked") == 0)
        await until(lambda: not calls_ending())

    run(scenario())


def test_the_story_is_told_in_parts_and_asked_about_once(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "EVENTS_MAX", 7)

    async def scenario() -> None:
        controller, socket, pupils = Controller(), state_dir / "door", Class()
        start_s = now_s() - 10_000
        for number in range(20):
            controller.events += whole_run(number + 1, start_s + 100 * number, 50)
        controller.events += [submitted(100, now_s()), submitted(101, now_s()), started(100, now_s())]
        told = options(state_dir, socket)
        async with unix_door(controller, socket), living(told, pupils):
            await until(lambda: estimates(controller) == {100: 100, 101: 100})
            assert pupils.last.batches == [2]
            assert len(pupils.last.told) == 63
            instants = [one[1].at_s if one[0] == "submitted" else one[2] for one in pupils.last.told]
            assert instants == sorted(instants)

    run(scenario())


def test_many_forecasts_go_in_messages_that_the_controller_takes(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The story fills its parts to the last place: its end is an empty one.
    monkeypatch.setattr(follower_module, "EVENTS_MAX", 401)

    async def scenario() -> None:
        controller, socket = Controller(), state_dir / "door"
        controller.events = [submitted(number, now_s() - 9) for number in range(1, 1204)]
        async with unix_door(controller, socket), living(options(state_dir, socket), Class()):
            await until(lambda: len(controller.forecasts) == 1203)
            assert sum(len(one.forecasts) for one in controller.sent) == 1203

    run(scenario())


def test_what_happens_to_a_job_is_told(state_dir: Path) -> None:
    async def scenario() -> None:
        controller, socket, pupils = Controller(), state_dir / "door", Class()
        async with unix_door(controller, socket), living(options(state_dir, socket), pupils) as one:
            at_s = now_s()
            controller.tell(
                submitted(
                    7, at_s, name="a", command="/x", memory_mib=5, partition="p", account="c", group="g"
                )
            )
            await until(lambda: 7 in controller.forecasts)
            controller.tell(changed(7, at_s + 1, name="b"), started(7, at_s + 2), started(8, at_s + 2))
            controller.tell(requeued(7, at_s + 3), started(7, at_s + 4), ended(9, at_s + 4, 3))
            # A clock that was set back does not turn time back.
            controller.tell(ended(7, at_s, 1))
            await until(lambda: pupils.last.told[-1][0] == "ended" and len(pupils.last.told) == 8)
            kinds = [(one[0], one[1].name if one[0] == "submitted" else one[-1]) for one in pupils.last.told]
            assert kinds == [
                ("submitted", "a"),
                ("ended", 0),
                ("submitted", "b"),
                ("started", at_s + 2),
                ("ended", 0),
                ("submitted", "b"),
                ("started", at_s + 4),
                ("ended", 1),
            ]
            job = pupils.last.told[0][1]
            assert (job.user, job.group, job.account, job.command, job.partition) == (
                "ada",
                "g",
                "c",
                "/x",
                "p",
            )
            assert (job.nodes, job.cores, job.memory_mib, job.limit_s) == (1, 4, 5, 3600)
            assert pupils.last.told[-1][2] == at_s + 4
            await until(lambda: metric(one, "eslurm_estimator_jobs") == 0)
            assert metric(one, "eslurm_estimator_accuracy_ratio") == 0.01
            assert metric(one, "eslurm_estimator_underestimated_ratio") == 0

    run(scenario())


def metric(one: EstimatorDaemon, name: str) -> float | None:
    return one.metrics.registry.get_sample_value(name)


def test_a_failover_tells_the_story_anew(state_dir: Path) -> None:
    async def scenario() -> None:
        controller, socket, pupils = Controller(), state_dir / "door", Class()
        controller.events = [submitted(1, now_s())]
        async with unix_door(controller, socket), living(options(state_dir, socket), pupils):
            await until(lambda: 1 in controller.forecasts)
            controller.succeed()
            await until(lambda: 1 in controller.forecasts)
            assert (controller.begun, len(pupils.pupils)) == (2, 3)
            controller.tell(submitted(2, now_s()))
            await until(lambda: 2 in controller.forecasts)
            assert [one[1].job_id for one in pupils.last.told] == [1, 2]

    run(scenario())


def test_it_goes_to_whichever_controller_answers(state_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        first, second = state_dir / "one", state_dir / "two"
        controller, pupils = Controller(), Class()
        controller.events = [submitted(1, now_s())]
        async with living(options(state_dir, first, second), pupils):
            async with unix_door(controller, second):
                await until(lambda: 1 in controller.forecasts)
            controller.succeed()
            async with unix_door(controller, first):
                await until(lambda: 1 in controller.forecasts)
                controller.refuse = UNAVAILABLE
                controller.tell(submitted(2, now_s()))
                await until(lambda: "it starts" in caplog.text)
                controller.refuse = None
                await until(lambda: 2 in controller.forecasts)

    run(scenario())


def test_without_the_right_it_says_what_to_do(state_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        controller, socket = Controller(), state_dir / "door"
        async with unix_door(controller, socket, operator=False), living(options(state_dir, socket), Class()):
            await until(lambda: "cluster.operators must name this user" in caplog.text)

    run(scenario())
    assert caplog.text.count("refuses its feed") == 1


def test_refused_forecasts_are_dropped_and_late_ones_sent(
    state_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        controller, socket = Controller(), state_dir / "door"
        async with unix_door(controller, socket), living(options(state_dir, socket), Class()) as one:
            controller.refuse_forecasts = ApiError(Status.INVALID_ARGUMENT, "nonsense")
            controller.tell(submitted(1, now_s()))
            await until(lambda: "1 forecasts, they are dropped: nonsense" in caplog.text)
            controller.refuse_forecasts = ApiError(Status.RESOURCE_EXHAUSTED, "too much")
            controller.tell(submitted(2, now_s()))
            await until(lambda: metric(one, "eslurm_estimator_forecasts_waiting") == 1)
            controller.refuse_forecasts = None
            await until(lambda: estimates(controller) == {2: 100})
            # It hears that they have arrived a moment after they have.
            await until(lambda: metric(one, "eslurm_estimator_forecasts_sent_total") == 1)

    run(scenario())


def test_small_changes_are_not_sent(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)

    async def scenario() -> None:
        controller, socket, pupils = Controller(), state_dir / "door", Class()
        async with unix_door(controller, socket), living(options(state_dir, socket, refresh_s=0.001), pupils):
            controller.tell(submitted(1, now_s() - 5))
            await until(lambda: 1 in controller.forecasts)
            pupils.last.seconds = 104
            asked = len(pupils.last.asked)
            await until(lambda: len(pupils.last.asked) > asked + 1)
            assert estimates(controller) == {1: 100}
            pupils.last.seconds = 106
            await until(lambda: estimates(controller) == {1: 106})
            assert len(controller.sent) == 2

    run(scenario())


def test_a_job_that_outlives_its_estimate_is_estimated_again(state_dir: Path) -> None:
    async def scenario() -> None:
        controller, socket, pupils = Controller(), state_dir / "door", Class()
        at_s = now_s() - 500
        controller.events = [submitted(1, at_s), started(1, at_s)]
        async with unix_door(controller, socket), living(options(state_dir, socket), pupils):
            await until(lambda: 1 in controller.forecasts)
            assert 500 < estimates(controller)[1] < 600
            # No more of it for a while, although it outlives that at once.
            ticks = len(pupils.last.asked)
            controller.tell(submitted(2, now_s()))
            await until(lambda: 2 in controller.forecasts)
            assert len(pupils.last.asked) == ticks + 1

    run(scenario())


@pytest.mark.parametrize("method", ["submitted", "answer", "settle"])
def test_an_estimator_that_fails_costs_forecasts_only(
    state_dir: Path, method: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecaster_module, "BROKEN_S", 0.05)
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        controller, socket, pupils = Controller(), state_dir / "door", Class()
        async with unix_door(controller, socket), living(options(state_dir, socket), pupils) as one:
            await until(lambda: metric(one, "eslurm_estimator_answering") == 1)
            pupils.last.wrong[method] = KeyError("lovelace")
            pupils.last.lessons.append(lambda: model_of(1))
            pupils.prepare = lambda pupil: pupil.wrong.update({method: KeyError("lovelace")})
            controller.tell(submitted(1, now_s()))
            await until(lambda: "the estimator failed: KeyError at esestd.py" in caplog.text)
            pupils.prepare = lambda _pupil: None
            await until(lambda: 1 in controller.forecasts)
            assert metric(one, "eslurm_estimator_answering") == 1

    run(scenario())
    assert "lovelace" not in caplog.text


def test_lessons_run_beside_it_and_are_kept(state_dir: Path) -> None:
    async def scenario() -> None:
        controller, socket, pupils = Controller(), state_dir / "door", Class()
        go_on = threading.Event()

        def lesson() -> Model:
            assert go_on.wait(50)
            return model_of(500)

        async with unix_door(controller, socket), living(options(state_dir, socket), pupils) as one:
            controller.tell(submitted(1, now_s() - 5))
            await until(lambda: estimates(controller) == {1: 100})
            pupils.last.lessons.append(lesson)
            await until(lambda: one.is_learning)
            controller.tell(submitted(2, now_s()))
            await until(lambda: 2 in controller.forecasts)
            go_on.set()
            await until(lambda: metric(one, "eslurm_estimator_trainings_total") == 1)
            # What waits is estimated anew by it.
            await until(lambda: estimates(controller) == {1: 500, 2: 500})
            path = state_dir / "esestd" / "models" / "pupil-1.npz"
            await until(path.exists)
            assert not one.is_learning
            age_s = metric(one, "eslurm_estimator_model_age_seconds")
            assert age_s is not None and 0 <= age_s < 20
        assert read_kept(path, "pupil").model.arrays["seconds"][0] == 500
        (path.parent / "pupil-2.npz.new").write_bytes(b"half")
        (path.parent / "pupil-2.npz").write_bytes(b"damaged")
        controller.succeed()
        async with unix_door(controller, socket), living(options(state_dir, socket), pupils):
            await until(lambda: estimates(controller) == {1: 500, 2: 500})
        assert not (path.parent / "pupil-2.npz.new").exists()

    run(scenario())


def test_a_lesson_of_an_estimator_before_is_heard_out(state_dir: Path) -> None:
    async def scenario() -> None:
        controller, socket, pupils = Controller(), state_dir / "door", Class()
        go_on = threading.Event()

        def lesson() -> Model:
            assert go_on.wait(50)
            return model_of(500)

        async with unix_door(controller, socket), living(options(state_dir, socket), pupils) as one:
            controller.tell(submitted(1, now_s() - 5))
            await until(lambda: 1 in controller.forecasts)
            pupils.last.lessons.append(lesson)
            await until(lambda: one.is_learning)
            pupils.prepare = lambda pupil: pupil.lessons.append(lambda: model_of(600))
            controller.succeed()
            await until(lambda: estimates(controller) == {1: 100})
            # The one thread is taken: the next lesson waits for it, and what the old one gave is not used.
            go_on.set()
            await until(lambda: estimates(controller) == {1: 600})
            assert [int(model.arrays["seconds"][0]) for model in pupils.last.models] == [600]
            assert metric(one, "eslurm_estimator_trainings_total") == 1

    run(scenario())


def test_a_lesson_that_fails_is_tried_again_later(
    state_dir: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecaster_module, "LESSON_AGAIN_S", 1)
    hasten(monkeypatch)

    def failing() -> Model:
        raise ZeroDivisionError("lovelace")

    async def scenario() -> None:
        controller, socket, pupils = Controller(), state_dir / "door", Class()
        async with unix_door(controller, socket), living(options(state_dir, socket), pupils) as one:
            await until(lambda: bool(controller.begun and metric(one, "eslurm_estimator_answering")))
            pupils.last.lessons += [failing, lambda: Model({}, {}), lambda: model_of(7)]
            await until(lambda: metric(one, "eslurm_estimator_trainings_failed_total") == 1)
            controller.tell(submitted(1, now_s()))
            await until(lambda: estimates(controller) == {1: 100})
            await until(lambda: metric(one, "eslurm_estimator_trainings_total") == 1)
            assert metric(one, "eslurm_estimator_trainings_failed_total") == 2

    run(scenario())
    assert "a training failed: ZeroDivisionError at test_daemon.py" in caplog.text
    assert "the next try is in 2 s" in caplog.text
    assert "lovelace" not in caplog.text


def test_a_warm_start_from_another_cluster(state_dir: Path) -> None:
    async def scenario() -> None:
        controller, socket = Controller(), state_dir / "door"
        controller.events = [submitted(1, now_s())]
        told = options(state_dir, socket, warm_start=model_of(77))
        async with unix_door(controller, socket), living(told, Class()):
            await until(lambda: estimates(controller) == {1: 77})
        # What was learnt here counts more.
        ModelFiles(told.state_dir / "models", "pupil").save(model_of(88))
        controller.succeed()
        async with unix_door(controller, socket), living(told, Class()):
            await until(lambda: estimates(controller) == {1: 88})
        with pytest.raises(ValueError, match="of another kind"):
            EstimatorDaemon(options(state_dir, socket, warm_start=Model({}, {})), Class())

    run(scenario())


def test_a_model_that_was_learnt_with_other_settings_is_used_but_told_of(
    state_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        controller, socket = Controller(), state_dir / "door"
        controller.events = [submitted(1, now_s())]
        files = ModelFiles(state_dir / "esestd" / "models", "pupil", {"k": 15})
        files.save(model_of(88))
        for settings, is_told in (({"k": 15}, False), ({"k": 16}, True)):
            caplog.clear()
            controller.succeed()
            told = msgspec.structs.replace(options(state_dir, socket), settings=settings)
            async with unix_door(controller, socket), living(told, Class()) as one:
                await until(lambda: estimates(controller) == {1: 88})
                assert ("with other settings (k: 15, now 16): it answers until" in caplog.text) is is_told
                one._keep(model_of(99), {})
                await until(lambda: "kept " in caplog.text)
            assert next(files.newest_first()).settings == settings
            next(files.newest_first()).path.unlink()

    caplog.set_level(logging.INFO)
    run(scenario())


def test_metrics_hold_no_words_of_users(state_dir: Path) -> None:
    async def scenario() -> None:
        controller, socket = Controller(), state_dir / "door"
        async with unix_door(controller, socket), living(options(state_dir, socket), Class()) as one:
            controller.tell(submitted(1, now_s() - 3, user="ada", name="secret"))
            await until(lambda: 1 in controller.forecasts)
            labels = [sample.labels for family in one.metrics.registry.collect() for sample in family.samples]
            assert {name for label in labels for name in label} <= {"version", "level"}
            lag_s = metric(one, "eslurm_estimator_feed_lag_seconds")
            assert lag_s is not None and 3 <= lag_s < 20

    run(scenario())
