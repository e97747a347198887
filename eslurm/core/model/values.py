"""Checks of values that travel from users into privileged processes, one for each kind of value.

The API refuses a bad value with the option's name; the agent and the step supervisor check it again where it acts. Each
function returns the problem and the way out, or an empty text.
"""

from __future__ import annotations

from eslurm.core.model.request_limits import PARTS_MAX

SIGNAL_MAX = 64
"""Linux counts signals from 1 to here; the real-time ones among them go by number alone."""
ID_MAX = 2**32 - 2
"""The highest uid or gid: to the kernel the next number means "leave it as it is"."""
UMASK_MAX = 0o777
EXIT_CODE_MAX = 255
COOKIE_BYTES = 32
"""Of a step: what its command and its supervisors know, and no other process."""


def signal_problem(number: int) -> str:
    """Check a signal number."""
    return "" if 1 <= number <= SIGNAL_MAX else f"{number} is not a signal: give 1 to {SIGNAL_MAX}"


def umask_problem(umask: int) -> str:
    """Check the permission bits that new files do not get."""
    return "" if 0 <= umask <= UMASK_MAX else f"{umask:#o} is not a umask: give 0 to {UMASK_MAX:#o}"


def id_problem(number: int) -> str:
    """Check a uid or gid for a process."""
    return "" if 0 <= number <= ID_MAX else f"{number} is not an id: give 0 to {ID_MAX}"


def parts_problem(count: int) -> str:
    """Check the number of a job's parts."""
    if count <= PARTS_MAX:
        return ""
    return f"a job of {count} parts: at most {PARTS_MAX} are possible, submit several jobs"


def text_problem(text: str, chars_max: int = 0) -> str:
    """Check a text for a program, a file name or an environment; `chars_max` 0: no bound."""
    if chars_max and len(text) > chars_max:
        return f"{len(text)} characters are more than {chars_max}: shorten it"
    if "\0" in text:
        return "contains a NUL character: remove it"
    if not text.isascii() and not is_utf8(text):
        return "contains half a character (a lone surrogate): remove it"
    return ""


def is_utf8(text: str) -> bool:
    """Check whether the text can be sent: file names may hold bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
