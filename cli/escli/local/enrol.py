"""The site's keys of a personal cluster, and the membership of each of its satellites and agents.

Invariant: valid files stay as they are, so a cluster that was made by an older release or copied comes up, too.
"""

from __future__ import annotations

import time

from escli.errors import ClusterError
from escli.local.layout import Layout
from escli.local.record import ClusterRecord
from eslurm.config.sections import Config
from eslurm.security import enrolment
from eslurm.security.files import UnsafeFile
from eslurm.security.membership import Role
from eslurm.security.site_keys import SiteKeyError, read_site_keys


def enrol(layout: Layout, config: Config, record: ClusterRecord) -> None:
    """Make every satellite and agent of the cluster a member. Only under the directory's lock. Raises `ClusterError`."""
    members: list[tuple[str, Role, str]] = [
        (f"sat{number}", "satellite", satellite.name) for number, satellite in enumerate(config.satellite, 1)
    ]
    members += [(agent.name, "agent", agent.nodes) for agent in record.agents]
    now_us = time.time_ns() // 1000
    try:
        keys = read_site_keys(layout.directory)
        for name, role, names in members:
            home = layout.state_of(name)
            home.mkdir(mode=0o700, exist_ok=True)
            enrolment.enrol(keys, home, role, names, now_us, ledger=layout.directory)
    except (SiteKeyError, UnsafeFile) as error:
        raise ClusterError(str(error)) from None
    except OSError as error:
        raise ClusterError(f"{error.filename}: {error.strerror}") from None
