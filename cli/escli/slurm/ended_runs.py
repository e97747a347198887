"""Lines of sacct for runs that have ended, read from the records of accounting when a column shows them.

A day has 100,000 runs, and most of their fields are never looked at: a line holds its record, its label and little else.
"""

from __future__ import annotations

from operator import attrgetter

from eslurm.compat.slurm import job_fields
from eslurm.compat.slurm.run_fields import Run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_BY = "cancelled by "
_UIDS: dict[str, int] = {}


class EndedRun(Run):
    """A line of a run that has ended, or of one of its parts. `info` is its job as far as the controller still knows it."""

    whole: Any = None
    """The record of all parts."""

    def __init__(self, attempt: Any, label: str, place: tuple[int, int, int], info: Any = None) -> None:
        self.attempt = attempt
        self.info = info
        self.label = label
        self.place = place

    def copy(self) -> Run:
        """A line with the same data, of which no part is shared."""
        one = Run()
        one.__dict__.update({name: read(self) for name, read in _READERS.items()})
        one.__dict__.update(self.__dict__)
        return one

    def batch(self) -> Run:
        """The line of its batch step."""
        one = _EndedBatch(self.attempt, f"{self.label}.batch", self.place, self.info)
        if self.info is not None:
            label = one.label
            one.__dict__.update(self.__dict__)
            one.label = label
        return one


class _EndedBatch(EndedRun):
    is_step = True
    tasks = 1


def _uid_of(run: Any) -> int:
    return int(run.info.uid) if run.info is not None else uid_of(run.attempt.user)


def _req_cpus(run: Any) -> int:
    return int((run.whole or run.attempt).cpus) if run.info is None else requested_cpus(run.info)


def _req_nodes(run: Any) -> int:
    return int((run.whole or run.attempt).nodes) if run.info is None else requested_nodes(run.info)


def _eligible_us(run: Any) -> int:
    known = job_fields.eligible_us(run.info) if run.info is not None else 0
    return known or int(run.attempt.submitted_us)


_KEPT = (
    *("job_id", "name", "user", "account", "partition", "state", "submitted_us", "started_us", "ended_us", "paused_us"),
    *("time_limit_s", "cpus", "nodes", "node_names", "exit_code", "exit_signal"),
    *("user_cpu_us", "system_cpu_us", "max_rss_kib"),
)  # fmt: skip
_READERS: Mapping[str, Callable[[Any], Any]] = {
    **{name: attrgetter(f"attempt.{name}") for name in _KEPT},
    "uid": _uid_of,
    "by_uid": lambda run: canceller(run.attempt.exit_text),
    "eligible_us": _eligible_us,
    "req_cpus": _req_cpus,
    "req_nodes": _req_nodes,
    "restarts": lambda run: max(0, run.attempt.attempt - 1),
}
"""Fields that are read from the record, as that of a batch step's job, too."""
for _name, _read in _READERS.items():
    setattr(EndedRun, _name, property(_read))
_EndedBatch.name = "batch"


def requested_cpus(info: Any) -> int:
    """The cores that a job has, or asks for."""
    return int(info.cpus or info.request.tasks * max(1, info.request.cpus_per_task))


def requested_nodes(info: Any) -> int:
    """The nodes that a job asks for, at least."""
    return max(1, int(info.request.nodes_min or info.nodes))


def canceller(text: str) -> int:
    """The user id of the user who cancelled a job; -1: not known."""
    return uid_of(text.removeprefix(_BY)) if text.startswith(_BY) else -1


def uid_of(name: str) -> int:
    """The number of a user; -1: this host does not know the name. Looked up once for each."""
    found = _UIDS.get(name)
    if found is None:
        import pwd

        try:
            found = pwd.getpwnam(name).pw_uid
        except KeyError:
            found = int(name) if name.isdecimal() else -1
        _UIDS[name] = found
    return found
