"""`eslurm estimate report`: how accurate users' time limits and the cluster's forecasts were, and which limits would do.

Only parsing, fetching and rendering: what is concluded is in `eslurm.lab.studies.advice`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from escli import clock, exits
from escli.api import Api
from escli.errors import ClusterError, unusable
from escli.failures import CommandFailed
from escli.open_api import open_api
from escli.options import Words
from escli.tables import Column, render
from eslurm.compat.durations import format_duration
from eslurm.compat.errors import OptionError, escaped
from eslurm.compat.moments import parse_moment

if TYPE_CHECKING:
    from eslurm.lab.studies.advice import Accuracy, Review, Run

COMMAND: Final = "eslurm estimate report"
PAGE: Final = 10_000
JOBS_MAX: Final = 200_000
_WHOLE: Final = "COMPLETED"
_CUT: Final = "TIMEOUT"


class Group(msgspec.Struct, frozen=True):
    """The jobs of one user with one name."""

    user: str
    name: str
    review: Review


class Report(msgspec.Struct, frozen=True):
    """The object that `--json` prints; shares are 0..1. `is_cut`: older jobs were left out."""

    since_us: int
    jobs: int
    is_cut: bool
    groups: tuple[Group, ...]


@click.command(short_help="Your jobs: how good limits and forecasts were, and which limits would do.")
@click.option("--user", "-u", metavar="NAME", help="Of this user (default: you).")
@click.option("--all-users", "-a", is_flag=True, help="Of all users.")
@click.option("--name", metavar="NAME", default="", help="Only jobs of this name.")
@click.option(
    "--since",
    "-S",
    metavar="TIME",
    default="now-30days",
    show_default=True,
    help="Only jobs that ended since then: 2026-03-01, now-7days.",
)
@click.option("--socket", metavar="PATH", default="", help="Socket of the controller.")
@click.option(
    "--remote", metavar="CONTROLLERS", default="", help="Controllers of another host, as HOST:PORT,..."
)
@click.option(
    "--token-file", metavar="FILE", default="", help="With these: who you are (~/.config/eslurm/token)."
)
@click.option("--tls-ca", metavar="FILE", default="", help="With these: the authorities that vouch for them.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def report(user: str | None, all_users: bool, name: str, since: str, as_json: bool, **way: str) -> int:
    """Compare how long jobs ran with their time limits and with what was forecast, by user and job name.

    \b
    LIMIT_AEA  how close time limits were: mean of min/max of limit and runtime; 1 is exact
    EST_AEA    the same of forecasts made at submission        UR       share of jobs that ran longer than forecast
    P10-P90    share of jobs that ended within the interval forecast at their start; 80 % is meant

    Suggested is a --time that is enough for the next such job with a chance of 95 %, from jobs that ended well or were cut
    by their limit; from fewer than 19 of them nothing is suggested. A shorter limit lets jobs start earlier.

    \b
    eslurm estimate report
    eslurm estimate report --all-users --since now-7days --json
    """
    if user and all_users:
        raise click.UsageError("--all-users: cannot go with --user")
    given = Words()
    for option, text in way.items():
        if text:
            long = option.replace("_", "-")
            given.put(long, text, f"--{long}")
    try:
        since_us = parse_moment(since, clock.now_us(), clock.local_offset_s, "--since", past=True)
        with open_api(given, COMMAND) as api:
            whose = "" if all_users else user or api.user()
            attempts, is_cut = _fetch(api, whose, name, since_us)
    except OptionError as error:
        raise unusable(str(error)) from None
    except CommandFailed as failure:
        raise ClusterError(failure.text, failure.code) from None
    found = reviewed(attempts, since_us, is_cut=is_cut)
    if as_json:
        sys.stdout.write(_as_json(found))
    elif found.groups:
        sys.stdout.write(as_text(found, whose))
    else:
        sys.stdout.write(_nothing(whose, name, since))
    return exits.OK


def _fetch(api: Api, user: str, name: str, since_us: int) -> tuple[list[Any], bool]:
    """Ended attempts, and whether there are more than the bound."""
    from eslurm.v1 import controller_pb2 as pb

    request = pb.AccountingRequest(user=user, name=name, since_us=since_us, limit=PAGE)
    found: list[Any] = []
    while True:
        reply = api.call("Accounting", request)
        found.extend(one for one in reply.attempts if one.started_us and one.ended_us)
        if not reply.next_page or not reply.attempts:
            return found, False
        if len(found) >= JOBS_MAX:
            return found, True
        request.page = reply.next_page


def reviewed(attempts: Sequence[Any], since_us: int, *, is_cut: bool = False) -> Report:
    """By user and name, those with most jobs first. Of a job that was requeued the last attempt counts."""
    from eslurm.lab.studies.advice import review

    last: dict[int, Any] = {}
    for one in sorted(attempts, key=lambda one: one.ended_us):
        last.pop(one.job_id, None)
        last[one.job_id] = one
    groups: dict[tuple[str, str], list[Run]] = {}
    for one in last.values():
        groups.setdefault((one.user, one.name), []).append(run_of(one))
    found = [Group(user, name, review(runs)) for (user, name), runs in groups.items()]
    found.sort(key=lambda group: (group.user, -group.review.jobs, group.name))
    return Report(since_us, len(last), is_cut, tuple(found))


def run_of(attempt: Any) -> Run:
    """The attempt as input of advice: the run time is rounded up to whole seconds, at least one."""
    from eslurm.core.model.forecast import Forecast
    from eslurm.lab.studies.advice import Run

    ran_us = attempt.ended_us - attempt.started_us - attempt.paused_us
    forecast = None
    if attempt.HasField("forecast"):
        one = attempt.forecast
        forecast = Forecast(one.p10_s, one.p50_s, one.p90_s, one.estimate_s)
    return Run(
        max(1, -(-ran_us // 1_000_000)),
        attempt.time_limit_s,
        attempt.first_estimate_s,
        forecast,
        attempt.state == _WHOLE,
        attempt.state == _CUT,
    )


def _nothing(whose: str, name: str, since: str) -> str:
    of = f" of {escaped(whose)}" if whose else ""
    named = f" named {escaped(name)}" if name else ""
    return (
        f"No job{of}{named} has run and ended since {since}: see --since, --user, --all-users and --name.\n"
    )


def as_text(found: Report, whose: str) -> str:
    """A table, then a sentence for each group, of which there is one."""
    heads = ("JOBS", "LIMIT", "LIMIT_AEA", "EST_AEA", "UR", "P10-P90")
    columns = [Column("USER"), Column("NAME"), *(Column(head, right=True) for head in heads)]
    rows = [
        [
            escaped(one.user),
            escaped(one.name),
            str(one.review.jobs),
            format_duration(one.review.limit_s) if one.review.limit_s else "-",
            _share(one.review.limit, "aea"),
            _share(one.review.estimate, "aea"),
            _share(one.review.estimate, "under"),
            "-" if one.review.coverage is None else f"{one.review.coverage:.2f}",
        ]
        for one in found.groups
    ]
    cut = (
        f"\nOnly the first {found.jobs:,} jobs were looked at: see --since, --user and --name.\n"
        if found.is_cut
        else ""
    )
    advice = "".join(f"{_advice(one, whose)}\n" for one in found.groups)
    return f"{render(columns, rows)}{cut}\n{advice}"


def _share(accuracy: Accuracy | None, field: str) -> str:
    return "-" if accuracy is None else f"{getattr(accuracy, field):.2f}"


def _advice(group: Group, whose: str) -> str:
    name = escaped(group.name)
    prefix = "" if whose else f"{escaped(group.user)}: "
    one = group.review.suggestion
    if one is None:
        return f"{prefix}{name}: {group.review.note}"
    return (
        f"{prefix}--time {format_duration(one.limit_s)} would do for 95 % of jobs named {name}; "
        f"chance of being cut at most {100 * one.chance:.1f} % (of {one.jobs} jobs)"
    )


def _as_json(found: Report) -> str:
    return msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n"
