"""`srun`: `esrun` under Slurm's name, for the options that mean the same in both; outside of jobs with those of salloc."""

from __future__ import annotations

import os
import sys

from escli.slurm import frame
from escli.slurm.step_texts import SlurmTexts
from escli.user.step_mpi import TYPES, chosen_type, list_types
from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.filenames import expand_pattern
from eslurm.compat.slurm.getopt import FLAG, HARMLESS, Parser
from eslurm.compat.slurm.sbatch_options import OPPOSITES
from eslurm.compat.slurm.srun_options import OF_STEPS, OUTSIDE, VARIABLES
from eslurm.compat.slurm.srun_options import ROWS as ROWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from escli.slurm.frame import Context
    from eslurm.compat.slurm.getopt import Options

STOPS = True
COMMAND = "srun"
_PROGRAMS_BYTES_MAX = 1024 * 1024
_FILES = ("output", "error", "open-mode")


def run(context: Context, given: Options) -> int:
    """The command; returns the exit code: the highest of its tasks."""
    is_inside = given.has("jobid") or bool(os.environ.get("SLURM_JOB_ID"))
    if given.last("mpi") == "list":
        sys.stdout.write(list_types())
        return 0
    _check_mpi(given)
    if not given.rest:
        raise frame.Failed("srun: fatal: No command given to execute.")
    if given.has("multi-prog"):
        given.rest = _programs(given.rest)
    return _run_inside(context, given) if is_inside else _run_outside(context, given)


def _check_mpi(given: Options) -> None:
    """Refuse an interface to MPI that is not there, in Slurm's words. Raises Failed."""
    text = chosen_type(given.last("mpi"), os.environ)
    if text not in TYPES:
        raise frame.Failed(f"srun: error: Invalid MPI type '{text}', --mpi=list for acceptable types")


def _run_inside(context: Context, given: Options) -> int:
    from escli.user import esrun
    from escli.user.step_claim import CLAIMS, LIMITS

    words = []
    if not any(os.environ.get(name) for name in frame.NAMED_BY) and context.socket:
        words += ["--socket", context.socket]
    words += _tasks_on_each_node(given, os.environ)
    if not any(given.has(long) for long in (*OF_STEPS.values(), *CLAIMS)):
        words += [f"--{long}" for name, long in OF_STEPS.items() if os.environ.get(name)][:1]
    for row, value, spelling in given.found:
        if row.long in ("ntasks-per-node", "multi-prog"):
            continue
        if row.long in OUTSIDE and row.long not in CLAIMS | LIMITS:
            text = "is not supported inside of jobs: the job has its nodes already"
            raise frame.Failed(f"srun: error: {spelling} {text}")
        if row.treatment != HARMLESS and not row.treatment.startswith("only:") and row.long not in _FILES:
            words.append(f"--{row.long}" if row.kind == FLAG else f"--{row.long}={value}")
    _redirect(given, os.environ)
    return esrun.main([*words, *given.rest], f"{COMMAND}: error", SlurmTexts())


def _programs(rest: list[str]) -> list[str]:
    """One program for all tasks, from the file that names one for each. Raises Failed."""
    from eslurm.compat.slurm.multi_prog import BadLine, script_of

    if len(rest) != 1:
        raise frame.Failed("srun: error: --multi-prog: name one file, whose lines are tasks and programs")
    try:
        with open(rest[0], encoding="utf-8", errors="surrogateescape") as file:
            text = file.read(_PROGRAMS_BYTES_MAX + 1)
        if len(text) > _PROGRAMS_BYTES_MAX:
            raise frame.Failed(f"srun: error: {rest[0]}: longer than {_PROGRAMS_BYTES_MAX} bytes")
        return ["/bin/sh", "-c", script_of(text)]
    except OSError as error:
        raise frame.Failed(
            f"srun: error: Unable to open configuration file {rest[0]}: {error.strerror}"
        ) from None
    except BadLine as error:
        raise frame.Failed(f"srun: error: configuration file {rest[0]}: {error}") from None


def _tasks_on_each_node(given: Options, environ: Mapping[str, str]) -> list[str]:
    """The number of tasks that `--ntasks-per-node` means inside a job; with `--ntasks` it is a bound. Raises Failed."""
    if not given.has("ntasks-per-node"):
        return []
    each, nodes, tasks = (
        whole_number(text)
        for text in (
            given.last("ntasks-per-node"),
            given.last("nodes") or environ.get("SLURM_JOB_NUM_NODES", ""),
            given.last("ntasks") or "0",
        )
    )
    if each < 1 or nodes < 1 or tasks > each * nodes:
        text = given.last("ntasks-per-node")
        raise frame.Failed(
            f"srun: error: --ntasks-per-node={text} does not fit the numbers of nodes and tasks: use -N and -n"
        )
    return [f"--nodes={nodes}"] + ([] if tasks else [f"--ntasks={each * nodes}"])


def _run_outside(context: Context, given: Options) -> int:
    """Ask for nodes as salloc does, and run one step on them."""
    from escli.slurm.sbatch import FAILED, adjust, from_environment, invalid, refused_as, to_words
    from escli.user.allocated_step import check_outside, run_allocated_step
    from escli.user.esalloc import allocation_request, immediate_s
    from escli.user.step_calls import take_binding
    from escli.user.step_run import check_here

    words = to_words(from_environment(Parser(ROWS, stops=True), VARIABLES, COMMAND), OPPOSITES)
    for long in (own := to_words(given.found, OPPOSITES)).names():
        words.drop(OPPOSITES.get(long, ()))
    words.overlay(own)
    words.rest = list(given.rest)
    words.drop((*_FILES, "multi-prog"))
    for long in ("output", "error"):
        _check_pattern(given, long, words.text("ntasks") or words.text("nodes") or "1")
    adjust(words, COMMAND)
    try:
        check_outside(words)
        take_binding(words, os.environ)
        job = allocation_request(words, words.rest)
        give_up_s = immediate_s(words)
    except OptionError as error:
        raise invalid(error, (words,), COMMAND) from None
    job["wckey"] = words.text("wckey")
    with context.open_api() as api:
        check_here(api)
        return run_allocated_step(
            *(api, COMMAND, job, words, SlurmTexts()),
            immediate_s=give_up_s,
            refused=lambda failure: frame.Failed(FAILED[COMMAND] + refused_as(frame.trouble(failure))),
            granted=lambda environ: _redirect(given, environ),
        )


def _redirect(given: Options, environ: Mapping[str, str]) -> None:
    """Send output to the files that are named; without `--error` both go to the one of `--output`. Raises Failed."""
    if not given.has("output") and not given.has("error"):
        return
    mode = given.last("open-mode") or os.environ.get("SLURM_OPEN_MODE", "t")
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if mode.startswith("a") else os.O_TRUNC)
    output = _open(given, "output", flags, environ) if given.has("output") else -1
    error = _open(given, "error", flags, environ) if given.has("error") else output
    for opened, target in ((output, 1), (error, 2)):
        if opened >= 0:
            os.dup2(opened, target)
    for opened in {output, error} - {-1}:
        os.close(opened)


def _open(given: Options, long: str, flags: int, environ: Mapping[str, str]) -> int:
    pattern = given.last(long)
    if pattern in ("none", "all"):
        return os.open(os.devnull, os.O_WRONLY) if pattern == "none" else -1
    from escli.user.step_input import name_fields

    _check_pattern(given, long, given.last("ntasks") or environ.get("SLURM_NTASKS", "1"))
    name = expand_pattern(pattern, name_fields(environ))
    try:
        return os.open(name, flags, 0o666)
    except OSError as failure:
        raise frame.Failed(f"srun: error: Could not open stdout file {name}: {failure.strerror}") from None


def _check_pattern(given: Options, long: str, tasks: str) -> None:
    pattern = given.last(long)
    if tasks != "1" and any(letter in pattern for letter in ("%t", "%n", "%N")):
        raise frame.Failed(
            f"srun: error: --{long}={pattern} is not supported: a file for each of several tasks"
        )
    if "%J" in pattern or "%s" in pattern:
        raise frame.Failed(
            f"srun: error: --{long}={pattern} is not supported: the step's number is not known here"
        )
