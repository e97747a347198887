"""Mail about jobs in Slurm's words: the values of --mail-type, and the subject and text of a message.

Invariant: a subject is one printable line, whatever the job is called, and a text has no control characters but line ends.
"""

from __future__ import annotations

from eslurm.compat.durations import format_elapsed, format_time_limit
from eslurm.compat.errors import OptionError, escaped
from eslurm.compat.filenames import FileNameFields, expand_pattern
from eslurm.core.model import mail_words as words
from eslurm.core.model.hostlist import fold

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eslurm.core.model.job import Job
    from eslurm.core.model.mail import MailNote

_TYPES = {word.upper().replace("-", "_"): word for word in words.WORDS}
_ALL = (words.BEGIN, words.END, words.FAIL, words.REQUEUE, words.INVALID_DEPENDENCY)
_NO_EVENT = ("NONE", "STAGE_OUT")
"""Without burst buffers nothing is staged out."""
_HAPPENED = {
    words.BEGIN: "Began",
    words.END: "Ended",
    words.FAIL: "Failed",
    words.REQUEUE: "Requeued",
    words.INVALID_DEPENDENCY: "Invalid dependency",
    words.TIME_LIMIT: "Reached time limit",
    **{word: f"Reached {percent}% of time limit" for percent, word in words.PERCENTAGES.items()},
}
_SUBJECT_CHARS_MAX = 512
_US = 1_000_000


def parse_mail_type(text: str, option: str = "--mail-type") -> str:
    """The events, in the words of the core, in the order of its table. Raises OptionError for one that is none."""
    found: set[str] = set()
    for name in text.split(","):
        upper = name.strip().upper()
        if upper == "ALL":
            found.update(_ALL)
        elif upper in _TYPES:
            found.add(_TYPES[upper])
        elif upper == "NONE":
            found.clear()
        elif upper not in _NO_EVENT:
            known = ", ".join(("NONE", "ALL", *_TYPES))
            raise OptionError(option, name.strip() or None, "is no event", f"use some of {known}")
    return ",".join(word for word in words.WORDS if word in found)


def parse_mail_user(text: str, option: str = "--mail-user") -> str:
    """The addresses or users. Raises OptionError for what is no plain mail address."""
    given = ",".join(one.strip() for one in text.split(","))
    for one in given.split(","):
        if not words.is_address(one):
            raise OptionError(
                option, one or None, "is neither a user nor a plain mail address", "use e.g. ada@example.org"
            )
    if given.count(",") >= words.ADDRESSES_MAX:
        raise OptionError(option, text, f"has more than {words.ADDRESSES_MAX} addresses", "name a list")
    return given


def mail_type_text(events: str) -> str:
    """The events as Slurm writes them: `BEGIN,END,FAIL`; empty: `NONE`."""
    return events.upper().replace("-", "_") or "NONE"


def mail_flags(events: str) -> list[str]:
    """The events as `--json` names them."""
    parts = {event: f"TIME={percent}%" for percent, event in words.PERCENTAGES.items()}
    named = {words.TIME_LIMIT: "TIME=100%", words.INVALID_DEPENDENCY: "INVALID_DEPENDENCY", **parts}
    return [named.get(event) or mail_type_text(event) for event in events.split(",") if event]


def subject_of(job: Job, note: MailNote) -> str:
    """`Slurm Job_id=17 Name=x Ended, Run time 00:00:05, COMPLETED, ExitCode 0`."""
    if job.is_array:
        about = f"Slurm Array Summary Job_id={job.job_id}_* ({job.job_id})"
    elif job.array_job_id:
        about = f"Slurm Array Task Job_id={job.array_job_id}_{job.array_task} ({job.job_id})"
    else:
        about = f"Slurm Job_id={job.job_id}"
    text = f"{about} Name={job.spec.name} {_HAPPENED[note.event]}{_time_of(note)}{_end_of(job, note)}"
    return _printable(text)[:_SUBJECT_CHARS_MAX]


def text_of(
    job: Job, note: MailNote, names: Sequence[str], cluster: str, moment: Callable[[int], str]
) -> str:
    """The text below: where, when and what was used. `names` are those of the message's nodes; `moment` writes a time."""
    spec = job.spec
    has_ended = note.event not in (words.BEGIN, *words.PERCENTAGES.values())
    more = f",... ({note.node_count} in all)" if note.node_count > len(names) else ""
    limit = format_time_limit(spec.time_limit_s)
    rows = [
        ("Job", f"{_label(job)} ({spec.name})"),
        ("User", spec.user.name),
        ("Cluster", cluster),
        ("Partition", spec.partition),
        ("Account", spec.account),
        ("State", note.state),
        ("Exit code", f"{note.exit_code}:{note.exit_signal}" if has_ended and note.started_us else ""),
        ("Reason", note.text),
        ("Nodes", f"{fold(names)}{more}" if names else ""),
        ("Submitted", moment(job.submitted_us)),
        ("Started", moment(note.started_us) if note.started_us else ""),
        ("At", moment(note.at_us)),
        (
            "Run time",
            f"{_clock(note.run_us)} of {limit}" if note.started_us and note.event != words.BEGIN else "",
        ),
        ("CPU time", f"{_clock(note.cpu_us)} (of the script)" if note.cpu_us else ""),
        ("Memory", f"{note.max_rss_kib / 1024:.1f} MiB at most (of the script)" if note.max_rss_kib else ""),
        ("Directory", spec.work_dir),
        ("Output", _file(job, note, names, spec.output)),
        ("Errors", _file(job, note, names, spec.error)),
        ("Comment", spec.comment),
    ]
    return "".join(f"{head + ':':<12}{_printable(value)}\n" for head, value in rows if value)


def _time_of(note: MailNote) -> str:
    if note.event == words.INVALID_DEPENDENCY:
        return ""
    return f", {'Queued' if note.event == words.BEGIN else 'Run'} time {_clock(note.run_us)}"


def _end_of(job: Job, note: MailNote) -> str:
    if note.event not in (words.END, words.FAIL):
        return ""
    if not job.is_array:
        return f", {note.state}" if note.exit_signal else f", {note.state}, ExitCode {note.exit_code}"
    if note.exit_signal:
        return f", Mixed, MaxSignal [{note.exit_signal}]"
    if not job.tasks_ok and note.exit_code:
        return f", {note.state}, MaxExitCode [{note.exit_code}]"
    state = "Mixed" if note.exit_code else note.state
    return f", {state}, ExitCode [0-{note.exit_code}]"


def _label(job: Job) -> str:
    return f"{job.array_job_id}_{job.array_task}" if job.array_job_id else str(job.job_id)


def _file(job: Job, note: MailNote, names: Sequence[str], pattern: str) -> str:
    """The file's path, as far as it is known without its node."""
    if not pattern or job.is_array:
        return pattern
    spec = job.spec
    return expand_pattern(
        pattern,
        FileNameFields(
            job.job_id,
            job_name=spec.name,
            user=spec.user.name,
            node_name=names[0] if names else "%N",
            array_job_id=job.array_job_id,
            array_task=job.array_task,
        ),
    )


def _clock(us: int) -> str:
    return format_elapsed(us // _US)


def _printable(text: str) -> str:
    """The text on one line; what does not belong into a line of text is escaped."""
    return escaped(text.encode("utf-8", "replace").decode())
