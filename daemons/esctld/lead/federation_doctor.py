"""The doctor's measurements of a federation, judged in `eslurm.core.doctor.federation`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from eslurm.config.federation import FederationSection, is_open_to_anybody, open_endpoints
from eslurm.core.doctor.federation import Federated
from eslurm.telemetry.clocks import wall_us

if TYPE_CHECKING:
    from esctld.lead.federation import Federation
    from eslurm.core.federation.usage import OtherUsage


async def examine(
    part: Federation, section: FederationSection, words: Callable[[], Sequence[OtherUsage]] = tuple
) -> Federated:
    """The cells as they are known, and the store as it answers now. `words` are those of other cells about usage."""
    members = await part.members()
    answer_us, problem = await part.time_answer()
    return Federated(
        part.view(),
        wall_us(),
        section.lease_s,
        members,
        answer_us,
        problem,
        open_endpoints(section),
        is_open_to_anybody(section),
        words(),
        part.usage.problem if part.usage is not None else "",
    )
