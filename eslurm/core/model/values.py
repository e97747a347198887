"""Values that travel from users into processes with rights: one check for each kind of value.

The door refuses a bad value with the option's name; the agent and the step supervisor, where the value acts, check it
again. Each function returns what is wrong and the way out, or an empty text.
"""

from __future__ import annotations

SIGNAL_MAX = 64
"""Linux counts signals from 1 to here; the real-time ones among them go by number alone."""
ID_MAX = 2**32 - 2
"""The highest uid or gid: to the kernel the next number means "leave it as it is"."""
UMASK_MAX = 0o777
EXIT_CODE_MAX = 255
COOKIE_BYTES = 32
"""Of a step: what its command and its supervisors know, and no other process."""


def signal_problem(number: int) -> str:
    """A signal that can be sent."""
    return "" if 1 <= number <= SIGNAL_MAX else f"{number} is not a signal: give 1 to {SIGNAL_MAX}"


def umask_problem(umask: int) -> str:
    """Permission bits that new files do not get."""
    return "" if 0 <= umask <= UMASK_MAX else f"{umask:#o} is not a umask: give 0 to {UMASK_MAX:#o}"


def id_problem(number: int) -> str:
    """A uid or gid that a process can have."""
    return "" if 0 <= number <= ID_MAX else f"{number} is not an id: give 0 to {ID_MAX}"


def parts_problem(count: int) -> str:
    """A job of so many parts, each with resources of its own: jobs of one part can be run."""
    if count == 1:
        return ""
    return f"a job of {count} components: parts are not supported yet, submit a job for each, or ask for all with --rset"


def text_problem(text: str, chars_max: int = 0) -> str:
    """A text that a program, a file name or an environment can hold; `chars_max` 0 bounds no length."""
    if chars_max and len(text) > chars_max:
        return f"{len(text)} characters are more than {chars_max}: shorten it"
    if "\0" in text:
        return "contains a NUL character: remove it"
    if not text.isascii() and not is_utf8(text):
        return "contains half a character (a lone surrogate): remove it"
    return ""


def is_utf8(text: str) -> bool:
    """Check whether the text can be sent: names of files may hold bytes that are none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
