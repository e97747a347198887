"""Records as bytes for the store's rows, and the state rebuilt from them.

rows == replay(log) == state: what `restore` builds equals what applying every fact would have built.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from eslurm.core.model.accounts import Policy, Usage
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.crontab import CRONTAB, Crontab
from eslurm.core.model.federation import FederationWish
from eslurm.core.model.forecast import Forecast
from eslurm.core.model.job import Job, StepEnd
from eslurm.core.model.job_ids import IdRange
from eslurm.core.model.job_states import AttemptPhase
from eslurm.core.model.member import JOIN_TOKEN, MEMBER, REVOCATION, JoinToken, Member, Revocation
from eslurm.core.model.node import Node
from eslurm.core.model.phase_lengths import PhaseLengths
from eslurm.core.model.promise import PROMISE, Promise
from eslurm.core.model.satellite import SatelliteDown
from eslurm.core.model.step import Step
from eslurm.core.model.token import TOKEN, IssuedToken
from eslurm.core.state.apply_accounts import USAGE, Record, put_policy, put_usage
from eslurm.core.state.apply_crontabs import put_crontab
from eslurm.core.state.apply_members import put_join_token, put_member, put_revocation
from eslurm.core.state.cluster import State


class Settings(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """The state's scalars: written on change, except `revision` and `now_us`, which every commit has."""

    config: ClusterConfig
    config_revision: int
    epoch: int
    next_id: int
    lease_end: int
    next_number: int = 0
    satellites_down: tuple[SatelliteDown, ...] = ()
    revoked_revision: int = 0
    phase_lengths: PhaseLengths | None = None
    federation: FederationWish | None = None
    id_blocks: tuple[IdRange, ...] = ()
    config_digests: tuple[bytes, ...] = ()
    partition_states: tuple[tuple[str, str], ...] = ()


class PartUse(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """Amounts that one part of an attempt held."""

    partition: str
    node_names: str
    nodes: int
    tasks: int
    cores: int
    memory_mib: int
    ended_us: int = 0
    """Time at which the running job gave it back; 0: it ended with the job."""


class SegmentUse(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """Nodes and cores of a run between two changes of its nodes."""

    from_us: int
    until_us: int
    node_names: str
    nodes: int
    cores: int


class Accounted(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """Accounting data of an attempt besides its columns. `is_array` marks an array's own summary.

    `first_estimate_s` is the job's (0: none), `forecast` the expectation when the attempt was placed. `trace` is the
    job's.
    """

    array_job_id: int = 0
    array_task: int = -1
    is_array: bool = False
    node_names: str = ""
    end: StepEnd | None = None
    text: str = ""
    paused_us: int = 0
    time_limit_s: int = 0
    first_estimate_s: int = 0
    forecast: Forecast | None = None
    trace: bytes = b""
    parts: tuple[PartUse, ...] = ()
    """Of a job of several parts."""
    pack_id: int = 0
    """The pack that it is a member of; 0: none."""
    pack_index: int = 0
    segments: tuple[SegmentUse, ...] = ()
    """Of a run whose nodes changed."""
    lent_core_us: int = 0
    """Core-microseconds of its cores that other jobs have used."""
    borrowed_core_us: int = 0
    """Core-microseconds that it has used of other jobs' cores."""


_encoder = msgspec.msgpack.Encoder()
_jobs = msgspec.msgpack.Decoder(Job)
_nodes = msgspec.msgpack.Decoder(Node)
_steps = msgspec.msgpack.Decoder(Step)
_accounted = msgspec.msgpack.Decoder(Accounted)
_settings = msgspec.msgpack.Decoder(Settings)
_policies: msgspec.msgpack.Decoder[Policy] = msgspec.msgpack.Decoder(Policy)
_others: dict[str, msgspec.msgpack.Decoder[Any]] = {
    USAGE: msgspec.msgpack.Decoder(Usage),
    PROMISE: msgspec.msgpack.Decoder(Promise),
    TOKEN: msgspec.msgpack.Decoder(IssuedToken),
    CRONTAB: msgspec.msgpack.Decoder(Crontab),
    JOIN_TOKEN: msgspec.msgpack.Decoder(JoinToken),
    MEMBER: msgspec.msgpack.Decoder(Member),
    REVOCATION: msgspec.msgpack.Decoder(Revocation),
}


def encode(record: Job | Node | Step | Settings | Accounted | Record) -> bytes:
    """A record as the bytes of its row."""
    return _encoder.encode(record)


def decode_job(blob: bytes) -> Job:
    """A job's record from its row."""
    return _jobs.decode(blob)


def decode_accounted(blob: bytes) -> Accounted:
    """An attempt's accounting from its row."""
    return _accounted.decode(blob)


def decode_record(kind: str, blob: bytes) -> Record:
    """A policy or another record from its row."""
    decoder: msgspec.msgpack.Decoder[Any] = _others.get(kind, _policies)
    record: Record = decoder.decode(blob)
    return record


def settings_of(state: State) -> Settings:
    """The state's scalars as one record."""
    return Settings(
        state.config,
        state.config_revision,
        state.epoch,
        state.next_id,
        state.lease_end,
        state.next_number,
        tuple(state.satellites_down.values()),
        state.revoked_revision,
        state.phase_lengths if state.phase_lengths != PhaseLengths() else None,
        state.federation,
        state.id_blocks,
        state.config_digests,
        tuple(state.partition_states.items()),
    )


def restore(
    owner: str,
    settings: bytes | None,
    nodes: Iterable[bytes],
    jobs: Iterable[bytes],
    steps: Iterable[bytes],
    revision: int,
    now_us: int,
    policies: Iterable[tuple[str, bytes]] = (),
) -> State:
    """The state as the last commit left it. Raises `msgspec.ValidationError` for bytes that are no such record.

    `policies` are (kind, record) of policies and of the other records.
    """
    state = State(owner)
    state.revision = revision
    state.now_us = now_us
    scalars = _settings.decode(settings) if settings is not None else None
    if scalars is not None:
        # Timers of nodes and jobs are set by the numbers in the configuration.
        state.config = scalars.config
    for blob in nodes:
        state.put_node(_nodes.decode(blob))
    if scalars is not None:
        state.partition_states = dict(scalars.partition_states)
        state.set_config(scalars.config, scalars.config_revision)
        state.epoch = scalars.epoch
        state.next_id = scalars.next_id
        state.lease_end = scalars.lease_end
        state.id_blocks = scalars.id_blocks
        state.config_digests = scalars.config_digests
        state.next_number = max(state.next_number, scalars.next_number)
        state.satellites_down = {down.name: down for down in scalars.satellites_down}
        state.revoked_revision = scalars.revoked_revision
        state.federation = scalars.federation
        if scalars.phase_lengths is not None:
            state.put_phase_lengths(scalars.phase_lengths)
    for kind, blob in policies:
        record = decode_record(kind, blob)
        if isinstance(record, Usage):
            put_usage(state, record)
        elif isinstance(record, Promise):
            state.put_promise(record)
        elif isinstance(record, IssuedToken):
            state.put_token(record)
        elif isinstance(record, Crontab):
            put_crontab(state, record)
        elif isinstance(record, JoinToken):
            put_join_token(state, record)
        elif isinstance(record, Member):
            put_member(state, record)
        elif isinstance(record, Revocation):
            put_revocation(state, record)
        else:
            put_policy(state, record)
    # Arrays first: their tasks look at their limits. Growths last: they look at their jobs' ends.
    records = sorted(
        (_jobs.decode(blob) for blob in jobs),
        key=lambda job: (job.grows is not None, job.array_job_id != 0, job.job_id),
    )
    for job in records:
        state.put_job(job)
    for blob in steps:
        step = _steps.decode(blob)
        # The store keeps the steps of earlier attempts too: for accounting.
        if _is_live(state, step):
            state.put_step(step)
    state.take_touched()
    state.plan_wanted = True
    return state


def _is_live(state: State, step: Step) -> bool:
    job = state.find_job(step.job_id)
    if job is None or job.attempt is None:
        return False
    return job.attempt.number == step.attempt and job.attempt.phase not in (
        AttemptPhase.RELEASING,
        AttemptPhase.SETTLING,
    )
