"""Fixtures of all contract tests: no database cuts off a session of this process because the machine stands still."""

from __future__ import annotations

import pytest

from eslurm.store import postgresql

PATIENCE_S = 30


@pytest.fixture(autouse=True)
def _patient_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers of PostgreSQL that neither lose a transaction nor give up a lock; those of other processes are as ever."""
    as_long = ("SET idle_in_transaction_session_timeout = 0", f"SET lock_timeout = '{PATIENCE_S}s'")
    monkeypatch.setattr(postgresql, "_WRITING", (*postgresql._WRITING, *as_long))
