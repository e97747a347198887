"""The product of a site's files: sections of a configuration, and findings beside them."""

from __future__ import annotations

from eslurm.compat.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from eslurm.compat.slurm.conf.lines import Line, Pair

LEFT = "left"
"""Nothing here does that; something is to be done by hand."""
CHANGED = "changed"
"""Taken over with a difference."""
WITHOUT = "no effect"
"""Of no meaning here, so nothing is missing."""
FINDINGS_MAX = 100_000
_VALUE_MAX = 200
_SECRET = "pass"  # nosec B105 # a part of the names of keys whose values are not shown


class Finding:
    """A setting that has no equivalent, or another one, with its place; `text` says why and what to do."""

    __slots__ = ("effect", "file", "key", "line", "text", "value")

    def __init__(self, file: str, line: int, key: str, value: str, effect: str, text: str) -> None:
        self.file = file
        self.line = line
        self.key = key
        self.value = value
        self.effect = effect
        self.text = text


class Draft:
    """The configuration while it is made. A section is a table, or a list of tables, of TOML."""

    def __init__(self) -> None:
        self.sections: dict[str, Any] = {}
        self.findings: list[Finding] = []
        self._told: set[tuple[object, ...]] = set()

    def set(self, section: str, key: str, value: object) -> None:
        """Set a key of a section."""
        self.sections.setdefault(section, {})[key] = value

    def get(self, section: str, key: str, default: Any) -> Any:
        """The value that a key has so far."""
        return self.sections.get(section, {}).get(key, default)

    def resources(self) -> frozenset[str]:
        """The names of the resources besides cores and memory."""
        of_nodes = (entry for section in self.sections.get("nodes", ()) for entry in section.get("gres", ()))
        named = {section["name"] for section in self.sections.get("resource", ())}
        return frozenset(named | {entry.partition(":")[0] for entry in of_nodes})

    def add(self, effect: str, line: Line, pair: Pair | None, text: str) -> None:
        """Add a finding about a pair, or about a whole line. Values of passwords are not repeated."""
        if len(self.findings) >= FINDINGS_MAX:
            return
        key = pair.key if pair else (line.pairs[0].key if line.pairs else "")
        value = pair.value if pair else (line.rest or (line.pairs[0].value if line.pairs else ""))
        value = "***" if _SECRET in f"{key} {line.rest}".lower() else value
        shown = value if len(value) <= _VALUE_MAX else f"{value[: _VALUE_MAX - 3]}..."
        told = line.file, line.number, key, shown, effect, text
        if told not in self._told:
            self._told.add(told)
            self.findings.append(Finding(*told))

    def refuse(self, line: Line, pair: Pair | None, error: OptionError) -> None:
        """Add a finding for a value that cannot be read."""
        subject = "" if pair and error.value == pair.value else f"{error.value} "
        self.add(LEFT, line, pair, f"{subject}{error.why}: {error.way_out}" if error.way_out else error.why)
