"""Logs made up for the tests of the evaluation, and an estimator that writes down what it is told."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from eslurm.core.model.forecast import Forecast, Submitted, exactly
from eslurm.lab.studies.workload import LoggedJob, build
from eslurm.lab.workloads.swf import Record, write_swf
from eslurm.ports.estimator import Lesson, Model

DAY_S = 86_400


def record(job_id: int, submit_s: int, run_s: int, **fields: Any) -> Record:
    """One job on a processor of user 1 that starts at once; it asks for twice what it runs."""
    usual = {"wait_s": 0, "allocated": 1, "requested": 1, "requested_s": 2 * run_s, "user": 1}
    return Record(job_id, submit_s, run_s=run_s, **{**usual, **fields})


def jobs(*records: Record) -> tuple[LoggedJob, ...]:
    """As an evaluation sees them."""
    return build(records).jobs


def synthetic(count: int, seed: int = 7, days: float = 8) -> list[Record]:
    """Users who repeat themselves, some bursts, jobs cut at their limits, jobs that fail at once, waits of hours."""
    draw = random.Random(seed)
    habits = [
        [(draw.choice((60, 900, 4_000, 20_000)), draw.choice((1, 4, 16)), program) for program in range(3)]
        for _ in range(6)
    ]
    records = []
    at_s = 0.0
    for number in range(1, count + 1):
        at_s += 0 if draw.random() < 0.15 else draw.expovariate(count / (days * DAY_S))
        user = draw.randrange(len(habits))
        length_s, cores, program = draw.choice(habits[user])
        limit_s = draw.choice((3_600, 14_400, 43_200)) if draw.random() < 0.95 else -1
        run_s = max(1, round(length_s * draw.lognormvariate(0, 0.2)))
        if draw.random() < 0.1:
            run_s = draw.randint(1, 20)
        if limit_s > 0:
            run_s = min(run_s, limit_s + draw.randint(0, 30))
        wait_s = 0 if draw.random() < 0.4 else draw.randint(1, 20_000)
        records.append(
            Record(
                number,
                int(at_s),
                wait_s=wait_s,
                run_s=run_s,
                allocated=cores,
                requested=cores,
                requested_s=limit_s,
                user=user if draw.random() < 0.98 else -1,
                group=user % 2,
                program=program,
                queue=program % 2,
            )
        )
    return records


def log_file(path: Path, records: Sequence[Record]) -> Path:
    """The same as a file."""
    write_swf(path, [" MaxProcs: 64", " UnixStartTime: 845000000"], records)
    return path


class Scribe:
    """An estimator that writes down what it is told, and answers from a queue of models."""

    name = "scribe"

    def __init__(self, answer_s: int = 100) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.answer_s = answer_s
        self.is_due: Callable[[int], bool] = lambda at_s: False
        self.lessons: list[Lesson] = []

    def submitted(self, job: Submitted) -> None:
        self.told.append(("submitted", job.job_id, job.at_s))

    def started(self, job_id: int, at_s: int) -> None:
        self.told.append(("started", job_id, at_s))

    def ended(self, job_id: int, at_s: int, runtime_s: int) -> None:
        self.told.append(("ended", job_id, at_s, runtime_s))

    def ask(self, job_id: int, at_s: int) -> int:
        self.told.append(("asked", job_id, at_s))
        return self.answer_s

    def answer(self, questions: Sequence[int]) -> list[Forecast]:
        self.told.append(("answered", len(questions)))
        return [exactly(question) for question in questions]

    def due(self, at_s: int) -> bool:
        return self.is_due(at_s)

    def settle(self, at_s: int) -> None:
        self.told.append(("settled", at_s))

    def lesson(self, at_s: int) -> Lesson | None:
        return self.lessons.pop(0) if self.lessons else None

    def adopt(self, model: Model) -> None:
        self.told.append(("adopted", model.facts["answer_s"]))
        self.answer_s = model.facts["answer_s"]

    def only(self, *kinds: str) -> list[tuple[Any, ...]]:
        """The calls of these kinds."""
        return [one for one in self.told if one[0] in kinds]
