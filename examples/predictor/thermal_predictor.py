"""Predicts the failure of nodes whose temperature, in a file that the site's monitoring writes, is above a limit.

The file has one `node degrees` pair per line. Settings: `file` (needed) and `limit_celsius`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from eslurm.core.prediction.predictor import FailurePredictor, NodesKnown, Observation


class ThermalPredictor:
    """Reads the file anew for each prediction: it runs on a thread of its own, so that may take its time."""

    def __init__(self, file: Path, limit_celsius: float) -> None:
        self._file = file
        self._limit_celsius = limit_celsius
        self._numbers: dict[str, int] = {}

    def observe(self, observation: Observation) -> None:
        """Only names matter here; broadcasts and health reports come too."""
        if isinstance(observation, NodesKnown):
            self._numbers = {name: number for number, name in observation.names.items()}

    def predict(self, now_us: int) -> Iterable[int]:
        """The numbers of the hot nodes. A file that is not there yet predicts nothing."""
        try:
            lines = self._file.read_text().splitlines()
        except FileNotFoundError:
            return []
        return [self._numbers[name] for name in self._hot(lines) if name in self._numbers]

    def _hot(self, lines: Iterable[str]) -> Iterable[str]:
        for line in lines:
            name, _, degrees = line.partition(" ")
            if degrees.strip() and float(degrees) > self._limit_celsius:
                yield name


def make(settings: Mapping[str, object]) -> FailurePredictor:
    """The predictor that the entry point names. `settings` is the table [failure.settings.thermal] of the configuration."""
    file, limit_celsius = settings.get("file"), settings.get("limit_celsius", 85.0)
    if not isinstance(file, str) or not isinstance(limit_celsius, int | float):
        raise ValueError('settings: file = "/path" is needed; limit_celsius is a number')
    return ThermalPredictor(Path(file), float(limit_celsius))
