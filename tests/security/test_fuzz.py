"""Twenty seconds of the grammar fuzz; `make fuzz SECONDS=600` goes on for longer."""

from __future__ import annotations

from tests.security.fuzz import fuzz_doors

SECONDS = 20.0


def test_nothing_that_is_nearly_right_harms_the_doors(as_root: None) -> None:
    verdict = fuzz_doors(SECONDS, seed=1)
    assert verdict.beside > 10
    assert not verdict.problems(), verdict
