"""The public logs that estimators are measured on, and which part of each.

They are not part of this repository: TRACES=DIR names the directory that holds them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

WARM_UP_JOBS: Final = 3_000


class Part(NamedTuple):
    """Jobs of a log: `jobs` of them (0: all) from the one at position `first` on."""

    name: str
    file: str
    first: int
    jobs: int


KTH: Final = "KTH-SP2-1996-2.1-cln.swf.gz"
CTC: Final = "CTC-SP2-1996-3.1-cln.swf.gz"
HPC2N: Final = "HPC2N-2002-2.2-cln.swf.gz"

PARTS: Final = (
    Part("kth", KTH, 0, 0),
    Part("ctc", CTC, 0, 30_000),
    Part("hpc2n", HPC2N, 0, 30_000),
    Part("ctc_later", CTC, 20_000, 30_000),
    Part("hpc2n_later", HPC2N, 60_000, 30_000),
)
"""The beginnings, and a later part of the long logs: users and habits change over years."""

QUICK: Final = (Part("kth_6000", KTH, 0, 6_000),)
