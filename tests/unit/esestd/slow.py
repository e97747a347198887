"""An estimator for a process of its own: its first lesson never ends, and says in a file that it has begun."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from eslurm.ports.estimator import Estimator, Model, Setting
from tests.kits.esestd import Pupil


class Slow(Pupil):
    name = "slow"


def make(settings: Mapping[str, Setting]) -> Estimator:
    one = Slow()

    def lesson() -> Model:
        Path(str(settings["began"])).touch()
        threading.Event().wait()
        raise AssertionError("it never ends")

    one.lessons.append(lesson)
    return one
