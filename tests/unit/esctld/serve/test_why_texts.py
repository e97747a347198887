"""`eswhy` of jobs with GPUs and chunks, from the state of a cluster to the text on the screen."""

from __future__ import annotations

import pytest

from escli.user.why import answer as shown
from esctld.serve.why import _fill, bid_reasons
from eslurm.api.infos import job_info
from eslurm.core.model.request import Chunk, Request
from eslurm.v1 import controller_pb2 as pb
from tests.kits.asking import Site
from tests.support.golden import Golden
from tests.unit.core.explain.test_alternatives import A100, PLAIN, V100, chunked, gpus, occupy, site, submit

pytestmark = pytest.mark.usefixtures("utc")


def text_of(here: Site, request: Request, hours: int) -> str:
    """The output of `eswhy` for such a job."""
    world = here.world
    job_id = submit(here, request, hours)
    here.run()
    reply = pb.WhyReply(
        job=job_info(world.state, world.job(job_id), None), priority=1000, now_us=world.now_us
    )
    told = here.why(job_id)
    _fill(reply, told, lambda _job_id: True)
    reply.job.planned_start_us = 0 if told.is_estimate else told.start_us
    return shown(reply) + "\n"


def test_a_job_with_gpus(golden: Golden) -> None:
    here = site()
    occupy(here, 2, *A100, hours=4)
    occupy(here, 1, *V100, hours=2)
    request = Request(nodes_min=2, nodes_max=2, tasks=4, per_node=(("gpu", 3),), constraint="gpu:a100&ib")
    golden("cli/eswhy-gpus.txt", text_of(here, request, 8))


def test_a_job_of_chunks(golden: Golden) -> None:
    here = site()
    occupy(here, 3, *A100, hours=4, cores=2)
    occupy(here, 2, *V100, hours=2, cores=2)
    occupy(here, 0, *PLAIN, hours=6, cores=4)
    request = chunked(Chunk(2, 4), Chunk(2, 2, 1024, (("gpu", 2),)), place="scatter")
    golden("cli/eswhy-chunks.txt", text_of(here, request, 8))


def test_a_job_with_one_gpu_of_a_type_on_a_full_cluster(golden: Golden) -> None:
    here = site()
    occupy(here, 4, *A100, hours=4)
    occupy(here, 3, *V100, hours=2)
    golden("cli/eswhy-gpu-type.txt", text_of(here, gpus(1, "gpu:a100"), 8))


def test_other_cells_answers_are_shown_with_the_job_s_own_reasons() -> None:
    here = site()
    world = here.world
    job_id = submit(here, Request(), 1)
    info = job_info(world.state, world.job(job_id), None)
    reply = pb.WhyReply(job=info, priority=1000, now_us=world.now_us)
    reply.reasons.extend(
        bid_reasons({"gamma": "no account physics", "beta": "it would start the job in 60 s"})
    )
    text = shown(reply)
    assert text.index("cell beta: it would start the job in 60 s") < text.index(
        "cell gamma: no account physics"
    )
