"""JSON documents as YAML 1.1, as `--yaml` prints them.

Written here, since a general library takes ten times as long for a queue of 10,000 jobs. Invariant: a reader of YAML finds
the same content as a reader of the JSON; a text that could be read as anything else is quoted. Characters beyond ASCII are
escaped as YAML does, which knows no pairs of surrogates.
"""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./+@%-]*(?: [A-Za-z0-9_./+@%-]+)*")
_NOT_ASCII = re.compile(r"[^\x20-\x7e]")
_OTHER = frozenset(["y", "yes", "n", "no", "true", "false", "on", "off", "null"])
"""Words that YAML 1.1 reads as something else, in any case."""


def from_json(document: str) -> str:
    """The YAML of a JSON document."""
    lines = ["---"]
    _add(lines, json.loads(document), "", "")
    lines.append("...\n")
    return "\n".join(lines)


def _add(lines: list[str], value: Any, head: str, indent: str) -> None:
    """Add a value. `head` stands before its first line, `indent` before the others; a scalar is one line."""
    if isinstance(value, dict) and value:
        for key, one in value.items():
            name = f"{head}{_text(key)}:"
            if isinstance(one, dict | list) and one:
                lines.append(name)
                _add(lines, one, indent + "  ", indent + "  ")
            else:
                lines.append(f"{name} {_scalar(one)}")
            head = indent
    elif isinstance(value, list) and value:
        for one in value:
            _add(lines, one, head + "- ", indent + "  ")
            head = indent
    else:
        lines.append(head + _scalar(value))


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        text = json.dumps(value)
        # YAML 1.1 takes a number with an exponent for one only if it has a point.
        return text if "e" not in text or "." in text else text.replace("e", ".0e")
    return json.dumps(value)


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _OTHER:
        return text
    return _NOT_ASCII.sub(_escape, json.dumps(text, ensure_ascii=False))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
