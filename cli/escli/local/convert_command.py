"""The command `eslurm convert`: parsing and rendering; `escli.local.convert` does it."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from escli import exits
from escli.errors import unusable
from escli.local.convert import ByHand, Converted, convert, convert_by_hand
from escli.local.layout import choose


@click.command("convert", short_help="Give a cluster of an older release keys and memberships.")
@click.option(
    "--state-dir",
    metavar="DIR",
    help="Of `eslurm up`, or of an esctld started by hand (default: $ESLURM_STATE_DIR, or ~/.local/state/eslurm).",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Of an esctld started by hand (default: eslurm.toml in DIR).",
)
@click.option(
    "--allow-root-jobs", is_flag=True, help="As root, of `eslurm up`: it goes on taking root's own jobs."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def convert_command(state_dir: str | None, config: Path | None, allow_root_jobs: bool, as_json: bool) -> int:
    """Convert a cluster of the release whose daemons shared one key (cluster.key), while its daemons are down.

    Jobs that run go on under their step supervisors, those that wait are kept. May be repeated.

    \b
    eslurm down --keep-jobs; eslurm convert; eslurm up -d    a cluster of `eslurm up`
    eslurm convert --state-dir /var/lib/eslurm               on a controller's host; it says what to do on the others
    """
    layout = choose(state_dir, os.environ)
    if layout.record_file.exists():
        if config is not None:
            raise unusable(
                f"--config: {layout.directory} is a cluster of `eslurm up`, with its configuration in it"
            )
        found = convert(layout, allow_root_jobs=allow_root_jobs)
        click.echo(_json(found) if as_json else _converted(found))
        return exits.OK
    if allow_root_jobs:
        raise unusable(
            f"--allow-root-jobs: no `eslurm up` made {layout.directory}: set agent.allow_root_jobs by hand"
        )
    done = convert_by_hand(layout.directory, config or layout.config_file)
    click.echo(_json(done) if as_json else _by_hand(done))
    return exits.OK


def _converted(found: Converted) -> str:
    if found.was_converted:
        return f"Cluster {found.cluster} needs no conversion: `eslurm up` starts it."
    lines = [
        f"Cluster {found.cluster} is converted: {found.members} satellites and agents are members of it."
    ]
    if found.retired:
        lines.append(f"  the shared key opens nothing any more: {found.retired} can be removed")
    if found.refuses_root:
        lines.append(
            "  jobs of root do not start any more: [agent] allow_root_jobs = true in eslurm.toml lets them"
        )
    return "\n".join([*lines, "  eslurm up -d    starts it; jobs that run have gone on"])


def _by_hand(done: ByHand) -> str:
    lines = [f"The keys of cluster {done.cluster} are in {done.site_key}."]
    if done.retired:
        lines.append(f"The shared key opens nothing any more: {done.retired}. Remove it on all hosts.")
    lines += [
        "1. Other controllers: copy site.key (mode 0600) and site.pub into the state directory of each.",
        "2. Here, a membership for each daemon (for an agent of several nodes: --names as its --nodes, without --each):",
        *(f"     {command}" for command in done.commands),
        "3. Move identity.key, membership and site.pub into the --state-dir of each daemon, owned by its user.",
        "4. Start the daemons of this release, without --key-file. Jobs that run have gone on.",
    ]
    return "\n".join(lines)


def _json(value: msgspec.Struct) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode()
