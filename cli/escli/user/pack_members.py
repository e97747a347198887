"""Jobs of a pack on the command line: `-N4 a.sh : --delay=00:30:00 -N2 b.sh` (D-04).

A part with a delay, or with a second script, begins the next job of the pack; other parts are parts of the job before. A job
without a script runs the only one that is named.
"""

from __future__ import annotations

from eslurm.compat.durations import parse_delay
from eslurm.compat.errors import OptionError
from eslurm.core.model.request_limits import PACK_MEMBERS_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from escli.options import Words

GO_ON, CANCEL = "go-on", "cancel"
FAIL_WORDS = (GO_ON, CANCEL)
"""The fate of jobs that have not begun when another one of the pack ends otherwise than well."""
_NO_JOB_BEFORE = "use e.g. essubmit a.sh : --delay=00:30:00 b.sh, or --begin now+30minutes"


class Member:
    """One job of a pack: the options of its parts. `name` is its name without an option, `where` its place in errors."""

    __slots__ = ("delay_s", "name", "parts", "where")

    def __init__(self, parts: list[Words], delay_s: int = 0, where: str = "", name: str = "") -> None:
        self.parts = parts
        self.delay_s = delay_s
        self.where = where
        self.name = name

    @property
    def source(self) -> Words | None:
        """The part that names the script; None: no part does."""
        return next((part for part in self.parts if _has_script(part)), None)


def members_of(parts: Sequence[Words]) -> list[Member]:
    """The jobs that these parts of a command line make: one, or those of a pack. Raises OptionError."""
    members = [Member([parts[0]], delay_of(parts[0]))]
    for number, part in enumerate(parts[1:], 1):
        if part.has("delay") or (_has_script(part) and members[-1].source is not None):
            members.append(Member([part], delay_of(part), f"part {number}: "))
        else:
            members[-1].parts.append(part)
    if len(members) > 1:
        members[0].where = "part 0: "
    check_members(members)
    _share_script(members)
    return members


def delay_of(words: Words) -> int:
    """The delay among these options; 0: none."""
    return parse_delay(words.text("delay"), words.spelling("delay")) if words.has("delay") else 0


def cancels(members: Sequence[Member]) -> bool:
    """Check whether the end of one job otherwise than well is to cancel those that have not begun. Raises OptionError.

    The option may stand in any part of any job.
    """
    said: dict[str, str] = {}
    for part in [part for member in members for part in member.parts if part.has("pack-fail")]:
        text, option = part.text("pack-fail"), part.spelling("pack-fail")
        if text not in FAIL_WORDS:
            raise OptionError(
                option, text, f"is not one of {', '.join(FAIL_WORDS)}", f"use e.g. --pack-fail={CANCEL}"
            )
        said[text] = option
    if len(said) > 1:
        text, option = said.popitem()
        raise OptionError(option, text, "differs from that of another part", "say one for the whole pack")
    return CANCEL in said


def check_members(members: Sequence[Member], way_out: str = _NO_JOB_BEFORE) -> None:
    """Raise OptionError where the first job has a delay, or where there are too many jobs."""
    if members[0].delay_s:
        raise OptionError(
            f"{members[0].where}delay",
            f"{members[0].delay_s} s",
            "counts from a job before, and there is none",
            way_out,
        )
    if len(members) > PACK_MEMBERS_MAX:
        raise OptionError(
            "pack", f"{len(members)} jobs", f"are more than {PACK_MEMBERS_MAX}", "submit several packs"
        )


def _has_script(words: Words) -> bool:
    return bool(words.rest) or words.has("wrap")


def _share_script(members: Sequence[Member]) -> None:
    named = [source for member in members if (source := member.source) is not None]
    for member in members:
        if member.source is not None or not named:
            continue
        if len(named) > 1:
            raise OptionError(
                f"{member.where}script",
                None,
                "is missing, and the other jobs name several",
                "name one behind the options of each job",
            )
        first = member.parts[0]
        first.rest = list(named[0].rest)
        if named[0].has("wrap"):
            first.put("wrap", named[0].text("wrap"), named[0].spelling("wrap"))
