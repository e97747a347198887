"""Output of `eslurm estimate evaluate`: three tables, or one JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from escli.tables import Column, render
from eslurm.compat.durations import format_duration

if TYPE_CHECKING:
    from eslurm.lab.studies.report import Outcome
    from eslurm.lab.studies.scores import Scores


class Judged(msgspec.Struct, frozen=True):
    """The part of the log that was replayed, and the figures of each estimator."""

    trace: str
    first: int
    jobs: int
    warm_up: int
    target_under: float
    notes: tuple[str, ...]
    results: tuple[Outcome, ...]


def as_text(judged: Judged) -> str:
    """At submission, at start, and what it cost."""
    begins = f" from {judged.first:,} on" if judged.first else ""
    scored = judged.jobs - judged.warm_up
    return "\n".join(
        [
            f"{judged.trace}: {judged.jobs:,} jobs{begins}, {scored:,} scored (after a warm-up of {judged.warm_up:,})",
            "",
            "at submission",
            _scores(judged, [(one.estimator, one.at_submission) for one in judged.results]),
            "at start",
            _scores(judged, [(one.estimator, one.at_start) for one in judged.results]),
            "CPU",
            _costs(judged.results),
        ]
    )


def as_json(judged: Judged) -> str:
    """One object; shares are 0..1."""
    found: dict[str, Any] = msgspec.to_builtins(judged)
    found["scored"] = judged.jobs - judged.warm_up
    return msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n"


def _scores(judged: Judged, rows: Sequence[tuple[str, Scores]]) -> str:
    target = f"{judged.target_under:.2f}" if judged.target_under >= 0.01 else f"{judged.target_under:g}"
    heads = ("AEA", "UR", "MAE", "P10-P90", "AREA_AEA", f"SCALED_TO_{target}", "AEA_THEN")
    return render(
        [Column("ESTIMATOR"), *(Column(head, right=True) for head in heads)],
        [
            [
                name,
                f"{scores.aea:.3f}",
                f"{scores.under:.3f}",
                format_duration(round(scores.mae_s)),
                f"{scores.coverage:.1%}",
                f"{scores.area_aea:.3f}",
                f"x{scores.scaled.factor:.3g}",
                f"{scores.scaled.aea:.3f}",
            ]
            for name, scores in rows
        ],
        gap="  ",
    )


def _costs(results: Sequence[Outcome]) -> str:
    heads = ("TRAININGS", "EACH_S", "LONGEST_S", "PREDICTION_MS", "TOTAL_S")
    return render(
        [Column("ESTIMATOR"), *(Column(head, right=True) for head in heads)],
        [
            [
                one.estimator,
                f"{one.cost.trainings:,}",
                f"{one.cost.train_s:.2f}",
                f"{one.cost.train_max_s:.2f}",
                f"{one.cost.predict_ms:.3f}",
                f"{one.cost.cpu_s:.1f}",
            ]
            for one in results
        ],
        gap="  ",
    )
