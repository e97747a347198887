"""The command `eslurm report`: parsing, the call and rendering; `escli.size_report` counts."""

from __future__ import annotations

import os

import click

from escli import clock, exits, used_runs
from escli.api import Api, find_endpoint
from escli.console import COMMAND, say, to_json
from escli.errors import ClusterError, unusable
from escli.failures import CommandFailed
from escli.options import Words
from escli.size_report import Distribution
from eslurm.compat.errors import OptionError
from eslurm.compat.moments import format_moment, parse_moment

TOP_DEFAULT = 20
_DAYS_DEFAULT = 30
_DAY_US = 86_400_000_000


@click.command(short_help="The distribution of jobs over their cores: core hours, waits, run times.")
@click.option(
    "--since",
    metavar="TIME",
    help=f"From then on; all: from the first job on (default: {_DAYS_DEFAULT} days ago).",
)
@click.option("--until", metavar="TIME", help="Up to then (default: now).")
@click.option("--user", metavar="NAME", help="Jobs of this user.")
@click.option("--account", metavar="NAME", help="Jobs of this account.")
@click.option("--partition", metavar="NAME", help="Jobs in this partition.")
@click.option(
    "--top",
    type=click.IntRange(1, 100_000),
    default=TOP_DEFAULT,
    metavar="N",
    help=f"So many rows, and one for all others (default {TOP_DEFAULT}).",
)
@click.option(
    "--state-dir", metavar="DIR", help="Of `eslurm up` (default: as the es* commands find the cluster)."
)
@click.option("--socket", metavar="PATH", help="The controller's socket.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with all rows.")
def report(
    since: str | None,
    until: str | None,
    user: str | None,
    account: str | None,
    partition: str | None,
    top: int,
    state_dir: str | None,
    socket: str | None,
    as_json: bool,
) -> int:
    """Show how jobs are distributed over the number of cores that they had, ranked by core hours.

    Core hours are those between --since and --until. Runs that ended give the mean and the longest run time, and ACCURACY,
    the run time as a share of the time limit; first attempts give the waits.

    \b
    eslurm report                                     the last 30 days
    eslurm report --since 2026-01-01 --until 2026-02-01 --partition batch
    eslurm report --since all --top 10 --json
    """
    now_us = clock.now_us()
    since_us = now_us - _DAYS_DEFAULT * _DAY_US if since is None else _moment(since, "--since", now_us)
    until_us = now_us if until is None else _moment(until, "--until", now_us)
    if until_us <= since_us:
        raise unusable(f"--until: {until or 'now'} is not after --since: give a later time")
    try:
        with _api(state_dir, socket) as api:
            runs, _ = used_runs.fetch(api, since_us, until_us)
    except OptionError as error:
        raise unusable(str(error)) from None
    except CommandFailed as failure:
        raise ClusterError(failure.text, failure.code) from None
    chosen = [
        run
        for run in runs
        if user in (None, run.user) and account in (None, run.account) and partition in (None, run.partition)
    ]
    found = Distribution(chosen, since_us, until_us)
    if as_json:
        whole = {"since_us": since_us, "until_us": until_us, "jobs": found.jobs, "rows": found.records()}
        say(to_json(whole))
        return exits.OK
    times = [format_moment(at_us, clock.local_offset_s) for at_us in (since_us, until_us)]
    first = "the first job" if not since_us else times[0]
    say(f"Jobs by their cores, {first} to {times[1]}")
    say(found.table(top).rstrip("\n") if found.rows else "no job used anything in this time")
    return exits.OK


def _api(state_dir: str | None, socket: str | None) -> Api:
    given = Words()
    if socket is not None:
        given.put("socket", socket, "--socket")
    environ = dict(os.environ)
    if state_dir is not None:
        environ["ESLURM_STATE_DIR"] = state_dir
        environ.pop("ESLURM_SOCKET", None)
        environ.pop("ESLURM_REMOTE", None)
    return Api(find_endpoint(given, environ), COMMAND)


def _moment(text: str, option: str, now_us: int) -> int:
    if text == "all":
        return 0
    try:
        return parse_moment(text, now_us, clock.local_offset_s, option, past=True)
    except OptionError as error:
        raise unusable(str(error)) from None
