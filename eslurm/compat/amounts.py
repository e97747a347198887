"""Amounts in limits and FreePools: `min[/max%]` (C-11), as `640`, `30/45%`, `20%`, `unlimited`.

With both parts the larger of the two counts. Invariant: `parse_amount(amount_text(amount)) == amount`.
"""

from __future__ import annotations

from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.sizes import format_memory, parse_memory
from eslurm.core.model.accounts import UNLIMITED, Amount

MEMORY = "memory_mib"
_ALL = frozenset({"unlimited", "all", "none"})
_WAY_OUT = "write MIN, MAX% or MIN/MAX%, e.g. 640, 45% or 30/45%, or unlimited"


def parse_amount(text: str, option: str = "items", resource: str = "") -> Amount:
    """The items and the share of the available ones. Memory is in MiB and may carry K, M, G, T.

    `unlimited` and `all` mean the same amount: no bound in a limit, everything in a FreePool. Raises `OptionError` with
    the column.
    """
    stripped = text.strip()
    if stripped.lower() in _ALL:
        return Amount()
    head, slash, tail = stripped.partition("/")
    offset = text.index(stripped) if stripped else 0
    if slash:
        items = _items(head, text, option, resource, offset)
        return Amount(items, _percent(tail, text, option, offset + len(head) + 1))
    if head.endswith("%"):
        return Amount(UNLIMITED, _percent(head, text, option, offset))
    return Amount(_items(head, text, option, resource, offset))


def amount_text(amount: Amount, resource: str = "") -> str:
    """The text that `parse_amount` reads."""
    if amount.items == UNLIMITED:
        return f"{_number(amount.percent)}%" if amount.percent else "unlimited"
    items = format_memory(amount.items) if resource == MEMORY else str(amount.items)
    return f"{items}/{_number(amount.percent)}%" if amount.percent else items


def _items(word: str, text: str, option: str, resource: str, offset: int) -> int:
    bare = word.strip()
    if bare.endswith("%"):
        raise _wrong(option, text, offset, "the number comes before the share")
    if resource == MEMORY:
        return parse_memory(bare, option)
    items = whole_number(bare, 15)
    if items < 0:
        raise _wrong(option, text, offset, "a whole number was expected")
    return items


def _percent(word: str, text: str, option: str, offset: int) -> float:
    bare = word.strip()
    digits = bare.removesuffix("%").strip()
    whole, dot, fraction = digits.partition(".")
    if bare == digits:
        raise _wrong(option, text, offset + len(word), "the share ends with %")
    if whole_number(whole, 3) < 0 or (dot and whole_number(fraction, 6) < 0):
        raise _wrong(option, text, offset, "a share in percent was expected")
    percent = float(digits)
    if not 0 < percent <= 100:
        raise _wrong(option, text, offset, "a share is more than 0% and at most 100%")
    return percent


def _number(percent: float) -> str:
    return f"{percent:.6f}".rstrip("0").rstrip(".")


def _wrong(option: str, text: str, index: int, why: str) -> OptionError:
    return OptionError(option, text, f"is not an amount: {why}, at column {index + 1}", _WAY_OUT)
