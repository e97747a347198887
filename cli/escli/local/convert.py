"""`eslurm convert`: a cluster of the release whose daemons shared one key gets keys and memberships.

Invariant: the daemons are down, and each step can be repeated: the record has the new format after the last one only. Jobs,
their supervisors, the store and the agents' spools are not touched.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import msgspec

from escli.errors import ClusterError, unusable
from escli.local import settings
from escli.local.enrol import enrol
from escli.local.layout import Layout, check, is_supervised, locked
from escli.local.record import FORMAT
from escli.local.stop import alive_daemons
from eslurm import __version__
from eslurm.config.file import read_config
from eslurm.config.problems import ConfigError
from eslurm.config.sections import Config
from eslurm.security.ownership import UnsafeFile, check_own_directory

SHARED_KEY = "cluster.key"
"""Default path of the shared key."""
RETIRED = ".retired"
MEMBERSHIPS = "memberships"
_KNOCK_TIMEOUT_S = 5.0


class Converted(msgspec.Struct, frozen=True):
    """`members`: number of satellites and agents with a membership; `retired`: path of the former shared key, or empty.

    `refuses_root`: the cluster is root's and refuses root's own jobs from now on.
    """

    cluster: str
    was_converted: bool
    members: int = 0
    retired: str = ""
    refuses_root: bool = False


class ByHand(msgspec.Struct, frozen=True):
    """The new files of a controller's directory, and the commands that issue memberships for the other daemons."""

    cluster: str
    site_key: str
    retired: str
    commands: tuple[str, ...]


def convert(layout: Layout, *, allow_root_jobs: bool = False) -> Converted:
    """Convert a personal cluster; `allow_root_jobs` as for a new one.

    Idempotent. Raises `ClusterError`, with nothing changed while daemons run.
    """
    check(layout)
    with locked(layout):
        record = layout.get_record()
        if not record.is_old:
            return Converted(record.cluster, was_converted=True)
        alive = alive_daemons(record)
        if alive or is_supervised(layout):
            names = ", ".join(daemon.name for daemon in alive) or "an `eslurm up` that watches them"
            raise ClusterError(
                f"{layout.directory}: daemons of the older release run ({names}): stop them and leave jobs running first: "
                "eslurm down --keep-jobs"
            )
        retired = None
        refuses_root = False
        # Without agents its first `eslurm up` got no further than the record, and makes the rest.
        if record.agents:
            config = settings.load_config(layout, record.cluster)
            try:
                settings.write_site_keys(layout.directory, record.cluster)
                settings.add_agent_section(layout, record.owner_uid, allow_root_jobs=allow_root_jobs)
            except OSError as error:
                raise _failed(error) from None
            config = settings.load_config(layout, record.cluster)
            refuses_root = record.owner_uid == 0 and not config.agent.allow_root_jobs
            enrol(layout, config, record)
            retired = _retire(layout.directory, config)
        members = len(record.agents) and len(record.agents) + len(config.satellite)
        layout.save(msgspec.structs.replace(record, format=FORMAT, version=__version__))
    return Converted(record.cluster, False, members, str(retired or ""), refuses_root)


def convert_by_hand(state_dir: Path, config_file: Path) -> ByHand:
    """Convert the directory of a controller that was started by hand. Idempotent. Raises `ClusterError`."""
    try:
        check_own_directory(state_dir)
    except UnsafeFile as error:
        raise unusable(f"--state-dir: {error}; convert as the user that esctld runs as") from None
    except OSError as error:
        raise unusable(f"--state-dir: {state_dir}: {error.strerror}") from None
    if not state_dir.exists():
        raise unusable(f"no cluster in {state_dir}: name its directory with --state-dir")
    try:
        config = read_config(config_file, is_obeyed=True)
    except ConfigError as error:
        raise unusable(str(error)) from None
    for path in sorted(state_dir.glob("esctld*.sock")):
        if _is_answered(path):
            raise ClusterError(
                f"{state_dir}: a controller runs here ({path.name}): stop all daemons of the cluster first (SIGTERM); their "
                "step supervisors and jobs go on"
            )
    try:
        settings.write_site_keys(state_dir, config.cluster.name)
    except OSError as error:
        raise _failed(error) from None
    retired = _retire(state_dir, config)
    return ByHand(
        config.cluster.name,
        str(state_dir / "site.key"),
        str(retired or ""),
        tuple(_commands(state_dir, config)),
    )


def _commands(state_dir: Path, config: Config) -> Iterator[str]:
    parts = [
        ("satellite", ",".join(satellite.name for satellite in config.satellite)),
        *(("agent", section.names) for section in config.nodes),
        ("login", config.login.nodes),
    ]
    for role, names in parts:
        if names:
            yield (
                f"eslurm keys issue --state-dir {quote(str(state_dir))} --role {role} --each --names {quote(names)} "
                f"--out {MEMBERSHIPS}"
            )


def _retire(directory: Path, config: Config) -> Path | None:
    """Move the key that all daemons shared aside, once; None when there is none any more."""
    key = directory / (config.cluster.key_file or SHARED_KEY)
    retired = key.with_name(key.name + RETIRED)
    try:
        if key.exists() and not retired.exists():
            os.chmod(key, 0o600, follow_symlinks=False)
            os.rename(key, retired)
    except OSError as error:
        raise _failed(error) from None
    return retired if retired.exists() else None


def _is_answered(path: Path) -> bool:
    """Check whether a process listens at the socket."""
    with socket.socket(socket.AF_UNIX) as knocking:
        knocking.settimeout(_KNOCK_TIMEOUT_S)
        try:
            knocking.connect(str(path))
        except TimeoutError:
            return True
        except OSError:
            return False
    return True


def _failed(error: OSError) -> ClusterError:
    return ClusterError(f"{error.filename}: {error.strerror}: do away with that, then convert again")
