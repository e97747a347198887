"""The forms of numbers, states and heads in the JSON of a release (`data_parser`)."""

from __future__ import annotations

import msgspec

from eslurm.compat.slurm.release import FULL, PARSERS, has_wrapped_numbers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class Shape:
    """The values of a release: numbers that may be unset as `{set, infinite, number}`, states as lists."""

    def __init__(self, release: str) -> None:
        self.release = release
        self.is_wrapped = has_wrapped_numbers(release)

    def number(self, value: int | None, *, is_endless: bool = False) -> Any:
        """A number that may be unset (None) or infinite."""
        if self.is_wrapped:
            return {"set": value is not None and not is_endless, "infinite": is_endless, "number": value or 0}
        return 0 if is_endless else value

    def moment(self, at_us: int) -> Any:
        """A time in seconds; 0: unset."""
        if self.is_wrapped:
            return self.number(at_us // 1_000_000 if at_us else None)
        return at_us // 1_000_000

    def states(self, *names: str) -> Any:
        """A state, or several."""
        return list(names) if self.is_wrapped else names[0]

    def exit_code(self, code: int, signum: int) -> Any:
        """The end of a job, in the form of `wait`."""
        if not self.is_wrapped:
            return signum or code << 8
        return {
            "status": ["SIGNALED" if signum else "ERROR" if code else "SUCCESS"],
            "return_code": self.number(code),
            "signal": {"id": self.number(signum or None), "name": ""},
        }

    def document(self, values: Mapping[str, Any], argv: Sequence[str], cluster: str = "") -> str:
        """The whole text: the values, and what every answer has."""
        major, minor, micro = FULL[self.release].split(".")
        if not self.is_wrapped:
            version: Any = {"major": int(major), "micro": int(micro), "minor": int(minor)}
            meta: dict[str, Any] = {
                "plugin": {"type": PARSERS[self.release], "name": "Slurm OpenAPI v0.0.38"},
                "Slurm": {"version": version, "release": FULL[self.release]},
            }
            return _text({"meta": meta, "errors": [], **values})
        meta = {
            "plugin": {
                "type": "",
                "name": "",
                "data_parser": PARSERS[self.release],
                "accounting_storage": "accounting_storage/slurmdbd",
            },
            "client": {"source": "", "user": "", "group": ""},
            "command": list(argv),
            "slurm": {
                "version": {"major": major, "micro": micro, "minor": minor},
                "release": FULL[self.release],
                "cluster": cluster,
            },
        }
        return _text({**values, "meta": meta, "errors": [], "warnings": []})


def _text(values: Mapping[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(values), indent=2).decode() + "\n"


def filled(record: dict[str, Any], paths: Mapping[str, Any]) -> dict[str, Any]:
    """The record with these fields, by their paths (`maximums/shares`), where it has none."""
    for path, value in paths.items():
        *above, name = path.split("/")
        inner = record
        for key in above:
            inner = inner.setdefault(key, {})
        inner.setdefault(name, value)
    return record
