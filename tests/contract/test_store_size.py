"""The contract of a store about its size."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kits.store import BACKENDS, OWNER, Backend, batch


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return BACKENDS[request.param](tmp_path)


def test_what_is_on_a_disk_has_a_size_that_grows(backend: Backend) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        before = await store.size_bytes()
        await store.commit(batch(1, facts=5_000))
        after = await store.size_bytes()
        # A store in memory takes nothing that could fill up.
        assert before == after == 0 or after > before + 5_000

    backend.run(test())
