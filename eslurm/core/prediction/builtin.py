"""The built-in predictors, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from eslurm.core.prediction.alerts import AlertPredictor, FiringAlerts
from eslurm.core.prediction.health import HealthPredictor
from eslurm.core.prediction.history import HistoryPredictor, HistorySettings
from eslurm.core.prediction.predictor import FailurePredictor

BUILT_IN: Final = ("alerts", "health", "history")


def make_built_in(
    name: str, settings: Mapping[str, object], lost_us: int, book: FiringAlerts
) -> FailurePredictor | None:
    """The predictor `name`, or None when it is not one of ours. `lost_us`: after this silence a node is lost.

    Raises ValueError for settings that it does not have; those of `alerts` are its sources' and not read here.
    """
    if name == "alerts":
        return AlertPredictor(book)
    if name == "health":
        if settings:
            raise ValueError(f"failure.settings.health: '{min(settings)}' is unknown: it has no settings")
        return HealthPredictor()
    if name == "history":
        try:
            return HistoryPredictor(lost_us, msgspec.convert(settings, HistorySettings))
        except msgspec.ValidationError as error:
            raise ValueError(f"failure.settings.history: {error}") from None
    return None
