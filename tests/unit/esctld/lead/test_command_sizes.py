"""A link takes all that an API server takes: the largest legal launch fits one frame, and a larger one is answered."""

from __future__ import annotations

import random

import msgspec
import pytest

from esctld.lead.launch_attachments import ATTACHED_BYTES_MAX
from eslurm.core.control.effects import node_groups
from eslurm.core.control.planning import plan_slices
from eslurm.core.model import request_limits as limits
from eslurm.core.model.hostlist import fold
from eslurm.core.model.job import JobSpec, Principal, Span
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import PlanMade, SubmitJobs
from eslurm.core.model.protocol import Body, Command, LaunchStep, Prepare
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.relay.messages import Broadcast
from eslurm.links.codec import encode_command
from eslurm.links.relay_envelopes import broadcast_item
from eslurm.security.sealing import SHARED_SEAL_BYTES_MAX
from eslurm.transport.options import CONTROL_ITEM_BYTES_MAX
from eslurm.v1 import link_pb2
from tests.kits.launches import launch_of
from tests.sim.lead import Lead, lead_with_nodes

NODES = 20_000
WIDE = "\N{PILE OF POO}"
"""Four bytes in one character."""


def spans(devices: int) -> list[Span]:
    """Every other node of twice as many, no two neighbours alike."""
    held = tuple(range(devices))
    return [
        Span(2 * at, (1 + at % 128, 10**6 + at, devices), 1 + at % 128, devices=((2, held),))
        for at in range(NODES)
    ]


def arguments() -> tuple[str, ...]:
    each = limits.ARGUMENTS_BYTES_MAX // limits.ARGUMENTS_MAX - 1
    return ("x" * each,) * limits.ARGUMENTS_MAX


def largest_job() -> Body:
    path = "/" + WIDE * (limits.PATH_CHARS_MAX - 1)
    name = WIDE * limits.NAME_CHARS_MAX
    own = spans(devices=8)
    return Prepare(
        launch_of(
            job_id=2**32 - 1,
            attempt=2**31,
            name=name,
            user=Principal("u" * 64, 2**32 - 1, 2**32 - 1, tuple(range(2**31, 2**31 + 1024)), "socket"),
            partition="p" * limits.PARTITION_CHARS_MAX,
            groups=node_groups(own),
            node_names=fold([f"rack{span.node % 97:02d}-cn{span.node:05d}" for span in own]),
            script_hash=bytes(32),
            environment_hash=bytes(32),
            work_dir=path,
            cpus_per_task=2**31,
            arguments=arguments(),
            output=path,
            error=path,
            input=path,
            account=name,
            qos=name,
            reservation=name,
            warn_script=path,
            devices=tuple((span.node, "gpu", tuple(range(8))) for span in own),
            trace=bytes(16),
        )
    )


def largest_step() -> Body:
    return LaunchStep(
        job_id=2**32 - 1,
        attempt=2**31,
        step=9_999,
        groups=node_groups(spans(devices=0)),
        argv=arguments(),
        environment_hash=bytes(32),
        work_dir="/" + WIDE * (limits.PATH_CHARS_MAX - 1),
        endpoint="x" * 256,
        cookie=bytes(64),
        tasks=2**31,
    )


@pytest.mark.parametrize("body", [largest_job(), largest_step()], ids=["job", "step"])
def test_the_largest_legal_command_fits_a_control_frame(body: Body) -> None:
    nodes = list(range(0, 2 * NODES, 2))
    random.Random(1).shuffle(nodes)
    runs = tuple((node, 1) for node in range(0, 2 * NODES, 2))
    command = Command(
        "c" * 63, "main", 2**40, 2**62, 0, runs, tuple(range(10**6, 10**6 + NODES)), 2**61, body
    )
    sealed = encode_command(command) + bytes(SHARED_SEAL_BYTES_MAX)
    assert len(sealed) <= limits.COMMAND_BYTES_MAX, len(sealed)
    sent = Broadcast(
        2**62,
        # As a satellite gets it: arranged, so that nothing of it folds.
        tuple(nodes),
        16,
        10**7,
        "prepare",
        sealed + bytes(limits.COMMAND_BYTES_MAX - len(sealed)),
        predicted=tuple(sorted(nodes[: NODES // 2])),
        missing=tuple(nodes[: NODES // 2]),
    )
    attached = (link_pb2.Blob(sha256=bytes(32), data=bytes(ATTACHED_BYTES_MAX)),)
    size_bytes = len(broadcast_item(sent, attached).SerializeToString())
    assert size_bytes <= CONTROL_ITEM_BYTES_MAX, size_bytes


def place(lead: Lead, spec: JobSpec) -> None:
    lead.post(SubmitJobs((spec,)))
    slices = plan_slices(lead.state, lead.now_us, None, PlanLimits())
    while True:
        try:
            next(slices)
        except StopIteration as finished:
            lead.post(PlanMade(finished.value.placements, finished.value.generation))
            return


def test_a_command_that_no_link_takes_is_answered_as_failed() -> None:
    """Goal: an old log may hold any spec, so what the door refuses today must not end the leader when it is launched."""
    lead = lead_with_nodes(3, launch_failures_max=1)
    huge = JobSpec(
        "huge",
        Principal("alice", 1000, 1000),
        "",
        (Request(tasks=3, nodes_min=3, nodes_max=3),),
        b"",
        b"",
        "/tmp",
        arguments=("x" * 100_000,) * 40,
    )
    place(lead, huge)
    assert lead.broadcaster.counters.too_large == 1
    assert "prepare" not in {one.broadcast.kind for one in lead.sent}
    (job,) = lead.state.jobs.values()
    assert job.state is JobState.PENDING and job.hold == "system"
    assert "at most 2097152 can be sent" in job.reason_text
    # What is small goes out as before.
    place(lead, msgspec.structs.replace(huge, arguments=("x",)))
    assert "prepare" in {one.broadcast.kind for one in lead.sent}
