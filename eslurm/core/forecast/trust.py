"""Choice between a job's model and the user's limit (E-48), and the slack on the model's estimate (E-47).

Invariant: without a limit there is only the model; with one the model must have earned it, by the accuracy of its cluster.
"""

from __future__ import annotations

from typing import Final

from eslurm.core.model.forecast import NO_LIMIT

AEA_MIN: Final = 0.90
"""A cluster's model replaces the estimates of users when its average accuracy is above this."""

ALPHA: Final = 1.05
"""The slack that Equation 3 multiplies an estimate with, against underestimates."""

OPEN: Final = 0.0
"""As the least accuracy: the model is always believed."""


def slacked(estimate_s: float, alpha: float = ALPHA) -> float:
    """Equation 3: the model's estimate with slack."""
    return estimate_s * alpha


def believes_model(limit_s: int, aea: float, aea_min: float = AEA_MIN) -> bool:
    """Check whether the model's estimate is used. `aea` is that of the job's cluster, 0 before its first job."""
    return limit_s == NO_LIMIT or aea_min == OPEN or aea > aea_min


def gated(model_s: float, limit_s: int, aea: float, aea_min: float = AEA_MIN) -> float:
    """The estimate in seconds: the model's, or the user's limit."""
    return model_s if believes_model(limit_s, aea, aea_min) else float(limit_s)
