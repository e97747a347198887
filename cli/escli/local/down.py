"""`eslurm down`: stop all daemons and jobs of a cluster; with `--purge` remove its data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

from escli.errors import ClusterError, unusable
from escli.local import controller
from escli.local.layout import Layout, check, foreign_names, locked
from escli.local.record import ClusterRecord
from escli.local.stop import Stopped, alive_daemons, leftovers, stop_all


def take_down(
    layout: Layout,
    *,
    keep_jobs: bool,
    purge: bool,
    tell: Callable[[str], None],
    hurry: Callable[[], bool] = lambda: False,
) -> Stopped | None:
    """Stop the cluster, None when there is none. Idempotent. Raises `ClusterError`."""
    if check(layout) is None:
        return None
    with locked(layout):
        record = check(layout)
        if record is None:
            return None
        if purge:
            _check_purgeable(layout)
        if alive_daemons(record):
            _tell_jobs(layout, record, keep_jobs, tell)
        stopped = stop_all(layout, record, keep_jobs=keep_jobs, hurry=hurry)
        if purge:
            if leftovers(layout, layout.get_record()):
                raise ClusterError(
                    f"{layout.directory}: processes of the cluster are still there: it is kept"
                )
            shutil.rmtree(layout.directory)
    return stopped


def _tell_jobs(layout: Layout, record: ClusterRecord, keep_jobs: bool, tell: Callable[[str], None]) -> None:
    reply = controller.ping(layout.sockets(record))
    count = 0 if reply is None else reply.jobs_running
    if not count:
        return
    jobs = "1 running job" if count == 1 else f"{count} running jobs"
    if keep_jobs:
        tell(f"{jobs} left running; requeueable ones end by themselves if no `eslurm up` follows in time")
    else:
        tell(
            f"ending {jobs}; requeueable ones start anew after the next `eslurm up` (--keep-jobs leaves them running)"
        )


def _check_purgeable(layout: Layout) -> None:
    """Check that the directory holds nothing but a cluster's own files."""
    if os.path.islink(layout.directory):
        raise unusable(f"{layout.directory}: is a symbolic link: --purge the directory it leads to")
    foreign = foreign_names(layout)
    if foreign:
        raise unusable(
            f"{layout.directory}: holds {foreign[0]}, which is not the cluster's: move it away, then --purge again"
        )
