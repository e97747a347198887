"""Tables of TOML as text. Invariant: `tomllib.loads(toml_text(tables)) == tables`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def toml_text(tables: Mapping[str, Any], head: str = "") -> str:
    """The text of named tables, lists of tables, and tables of tables, with comments before it.

    Values are texts, numbers, truth values, lists of these, and tables, which stand in one line.
    """
    parts = ["".join(f"# {line}\n" for line in head.splitlines())] if head else []
    for name, value in tables.items():
        if isinstance(value, list):
            parts += [_table(f"[[{_key(name)}]]", one) for one in value]
        elif value and all(isinstance(one, dict) for one in value.values()):
            parts += [_table(f"[{_key(name)}.{_key(inner)}]", one) for inner, one in value.items()]
        else:
            parts.append(_table(f"[{_key(name)}]", value))
    return "\n".join(parts)


def _table(head: str, settings: Mapping[str, Any]) -> str:
    return f"{head}\n" + "".join(f"{_key(key)} = {_value(value)}\n" for key, value in settings.items())


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{"".join(_escaped(value))}"'
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_key(key)} = {_value(one)}' for key, one in value.items())} }}"
    return repr(value)


def _key(name: str) -> str:
    return name if name and _BARE.issuperset(name) else _value(name)


def _escaped(text: str) -> Iterator[str]:
    for char in text:
        if char in '"\\':
            yield f"\\{char}"
        elif char < " " or char == "\x7f":
            yield f"\\u{ord(char):04x}"
        else:
            yield char
