"""Ten thousand jobs wait for one: its end is answered at once, and the others follow without being asked for."""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.control.reactor import SETTLED_PER_BATCH
from eslurm.core.model.messages import CancelJobs, JobRef, SubmitJobs, Submitted
from tests.kits.core import depends
from tests.support.loops import run
from tests.unit.esctld.test_dispatcher import ALICE, Bench, submission

MANY = 2_000


def waiting_for(job_id: int) -> SubmitJobs:
    (spec,) = submission().specs
    return SubmitJobs((replace(spec, dependencies=depends("afterany", job_id)),) * MANY)


def test_what_one_batch_owes_the_next_ones_do() -> None:
    async def main() -> None:
        async with Bench() as bench:
            first = await bench.dispatcher.request(submission())
            assert isinstance(first, Submitted)
            await bench.dispatcher.request(waiting_for(first.job_ids[0]))
            assert len(bench.state.queue) == 1
            await bench.dispatcher.request(CancelJobs(ALICE, (JobRef(first.job_ids[0]),)))
            assert bench.state.unsettled
            while bench.state.unsettled:
                await bench.dispatcher.moved()
            assert len(bench.state.queue) == MANY
            assert max(len(batch.facts) for batch in bench.committed[-5:]) <= SETTLED_PER_BATCH + 1

    run(main())


def test_a_dispatcher_that_stops_leaves_the_rest_to_its_successor() -> None:
    async def main() -> None:
        async with Bench() as bench:
            first = await bench.dispatcher.request(submission())
            assert isinstance(first, Submitted)
            await bench.dispatcher.request(waiting_for(first.job_ids[0]))
            await bench.dispatcher.request(CancelJobs(ALICE, (JobRef(first.job_ids[0]),)))
            bench.dispatcher.stop()
            await bench.task
            assert bench.state.unsettled

    run(main())
