"""Messages between simulated processes besides the relay's and the API's."""

from __future__ import annotations

import msgspec

from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.dispatch.satellite_pool import SatelliteStatus
from eslurm.core.model.messages import Request
from eslurm.core.model.protocol import Report, ReportAck
from eslurm.ports.store import BlobRow


class Hello(msgspec.Struct, frozen=True):
    """The first thing a dialler says. `number` is a satellite's relay number, 0 for others; `controller`: a standby."""

    number: int = 0
    controller: str = ""


class Welcome(msgspec.Struct, frozen=True):
    """The answer to `Hello`: the leader, as far as the answering process knows."""

    owner: str = ""
    epoch: int = 0


class Ping(msgspec.Struct, frozen=True):
    """The controller asks a satellite how it is."""

    seq: int


class Status(msgspec.Struct, frozen=True):
    """Its answer."""

    status: SatelliteStatus


class Reports(msgspec.Struct, frozen=True):
    """Reports of agents on their way up."""

    reports: tuple[Report, ...]


class Acks(msgspec.Struct, frozen=True):
    """Acknowledgements on their way down."""

    acks: tuple[ReportAck, ...]


class Call(msgspec.Struct, frozen=True):
    """A client's request. `retry` marks every try but the first."""

    request_id: bytes
    message: Request
    blobs: tuple[BlobRow, ...] = ()
    retry: bool = False


class Result(msgspec.Struct, frozen=True):
    """The answer to a call; `answer` None means: not now, try again."""

    request_id: bytes
    answer: BatchAnswer = None


class Attend(msgspec.Struct, frozen=True):
    """The command of an allocation is there; to a leader, which answers nothing."""

    job_id: int


class Takeover(msgspec.Struct, frozen=True):
    """An operator wants this controller to lead from now on."""

    to: str
