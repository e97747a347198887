"""The shared store that a configuration names: files that cannot be used are named, and end nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from eslurm.config.federation import FederationSection
from eslurm.federation.configured import store_of
from eslurm.ports.kv import KvDenied, KvUnavailable
from tests.support import certificates
from tests.support.loops import run
from tests.support.ports import free_port


def section(**fields: object) -> FederationSection:
    endpoint = f"http{'s' if 'ca' in fields else ''}://127.0.0.1:{free_port()}"
    return FederationSection(name="lab", endpoints=[endpoint], **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("mode", "words"), [(0o644, "chmod 600"), (None, "cannot be read")])
def test_a_password_that_others_can_read_is_refused(tmp_path: Path, mode: int | None, words: str) -> None:
    if mode is not None:
        path = tmp_path / "password"
        path.write_text("secret")
        path.chmod(mode)

    async def test() -> None:
        store = store_of(section(user="alpha", password_file="password"), tmp_path)
        with pytest.raises(KvDenied, match=words):
            await store.open()

    run(test())


def test_a_certificate_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(KvDenied, match=r"ca\.pem"):
        store_of(section(ca="ca.pem"), tmp_path)


def test_with_all_files_only_etcd_is_missing(tmp_path: Path) -> None:
    files = certificates.place(tmp_path)
    (tmp_path / "password").touch(0o600)
    (tmp_path / "password").write_text("secret\n")

    async def test() -> None:
        assert files.certificate is not None and files.key is not None
        named = section(
            ca=files.ca.name,
            certificate=files.certificate.name,
            key=files.key.name,
            user="alpha",
            password_file="password",
        )
        store = store_of(named, tmp_path)
        with pytest.raises(KvUnavailable, match=r"127\.0\.0\.1"):
            await store.open()
        await store.close()

    run(test())
