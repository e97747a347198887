"""The words of a job's mail options: events, and where messages go. Commands import this module, so it imports little.

Invariant: a text that is no plain mail address and no user name is refused here, at the door and again where it is used.
"""

from __future__ import annotations

from eslurm.core.model.wording import quoted

BEGIN = "begin"
END = "end"
FAIL = "fail"
REQUEUE = "requeue"
INVALID_DEPENDENCY = "invalid-depend"
TIME_LIMIT = "time-limit"
PERCENTAGES = {50: "time-limit-50", 80: "time-limit-80", 90: "time-limit-90"}
"""Events by the percentage of the time limit that has passed."""
EVENTS = (BEGIN, END, FAIL, REQUEUE, INVALID_DEPENDENCY, TIME_LIMIT, *PERCENTAGES.values())
ARRAY_TASKS = "array-tasks"
"""No event: messages are about each task of an array, not about the array as a whole."""
WORDS = (*EVENTS, ARRAY_TASKS)
ADDRESSES_MAX = 8
ADDRESS_CHARS_MAX = 254
USER_CHARS_MAX = 64
_ALPHANUMERIC = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_FIRST = _ALPHANUMERIC | {"_"}
_LOCAL = _FIRST | frozenset(".+=-")
_LABEL = _ALPHANUMERIC | {"-"}


def events_of(mail_type: str) -> tuple[str, ...]:
    """The words of the option, each once. Raises ValueError, which names a word that is none."""
    words = tuple(dict.fromkeys(mail_type.split(","))) if mail_type else ()
    unknown = [word for word in words if word not in WORDS]
    if unknown:
        raise ValueError(f"--mail-type: {quoted(unknown[0])} is no event: use some of {', '.join(WORDS)}")
    return words


def addresses_of(mail_user: str) -> tuple[str, ...]:
    """The mail addresses or user names in `mail_user`, separated by commas. Raises ValueError, which names the option."""
    found = tuple(dict.fromkeys(mail_user.split(","))) if mail_user else ()
    if len(found) > ADDRESSES_MAX:
        raise ValueError(f"--mail-user: {len(found)} addresses are more than {ADDRESSES_MAX}: name a list")
    for one in found:
        if not is_address(one):
            raise ValueError(
                f"--mail-user: {quoted(one)} is neither a user nor a plain mail address: use e.g. ada@example.org"
            )
    return found


def is_address(text: str) -> bool:
    """Check whether it is a plain mail address, or a user name. Programs take either for nothing else: neither begins like
    an option, a file or a pipe, and neither has a blank, a quote or a control character.
    """
    name, at, domain = text.partition("@")
    if not 0 < len(name) <= USER_CHARS_MAX or name[0] not in _FIRST or not _LOCAL.issuperset(name):
        return False
    return not at or (len(text) <= ADDRESS_CHARS_MAX and is_domain(domain))


def is_domain(text: str) -> bool:
    """Check whether it is the name of a mail domain or host."""
    return all(
        label and _LABEL.issuperset(label) and label[0] != "-" and label[-1] != "-"
        for label in text.split(".")
    )
