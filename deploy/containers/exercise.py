"""Uses what the image is made for, once: imports every daemon and trains every estimator. The image's build runs it.

Parts of the interpreter and of libraries are left out of the image; what is missed all the same is missed here.
"""

from __future__ import annotations

import random
from importlib import import_module

from eslurm.estimator import registry
from eslurm.lab.studies.evaluate import replay
from eslurm.lab.studies.workload import build
from eslurm.lab.workloads.swf import Record

DAEMONS = (
    *(
        "esctld.roles",
        "esctld.__main__",
        "essatd.daemon",
        "essatd.__main__",
        "esestd.daemon",
        "esestd.__main__",
    ),
    *("esnoded.daemon", "esnoded.__main__", "esnoded.stepd.__main__", "esnoded.stepd.supervisor"),
    "escli.local.main",
    *(
        "eslurm.store.sql",
        "psycopg",
        "sqlalchemy.dialects.postgresql.psycopg",
        "sqlalchemy.dialects.sqlite.pysqlite",
    ),
    "uvloop",
)
ADDED = (
    "cluster",
    "ensemble",
    "gaussian_process",
    "linear_model",
    "neighbors",
    "neural_network",
    "pipeline",
    "svm",
)
"""Parts of scikit-learn that estimators which a site adds are likely to be made of."""
JOBS = 400
UNTAUGHT = ("user", "last-2")


def jobs() -> list[Record]:
    """A log of users who repeat themselves, more or less."""
    draw = random.Random(1)
    return [
        Record(
            number,
            600 * number,
            wait_s=0,
            run_s=round(draw.choice((60, 900, 7_000)) * draw.lognormvariate(0, 0.2)),
            allocated=4,
            requested=4,
            requested_s=14_400,
            user=number % 5,
            program=number % 3,
        )
        for number in range(1, JOBS + 1)
    ]


def main() -> None:
    """Raises whatever does not work."""
    for name in (*DAEMONS, *(f"sklearn.{part}" for part in ADDED)):
        import_module(name)
    log = build(jobs()).jobs
    for name in registry.names():
        told = replay(log, registry.make(name, {}))
        if not told.spent.lessons and name not in UNTAUGHT:
            raise SystemExit(f"{name}: {JOBS} jobs have taught it nothing")


if __name__ == "__main__":
    main()
