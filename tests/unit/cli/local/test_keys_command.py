"""`eslurm keys`: files of a controller's directory, and what is refused."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from escli.local.eslurm import main
from eslurm.security import ledger
from eslurm.security.credentials import check_own, read_credentials
from eslurm.security.site_keys import read_ring, read_site_keys


@pytest.fixture
def keys(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> object:
    """Runs the command on one directory; its exit code and all that it says."""

    def run(*words: str) -> tuple[int, str]:
        code = main(["keys", words[0], "--state-dir", str(state_dir), *words[1:]])
        said = capsys.readouterr()
        return code, said.out + said.err

    assert run("init", "--cluster", "c")[0] == 0
    return run


def test_a_site_is_drawn_once(keys: object, state_dir: Path) -> None:
    assert stat.S_IMODE((state_dir / "site.key").stat().st_mode) == 0o600
    code, said = keys("init", "--cluster", "c")  # type: ignore[operator]
    assert code != 0 and "is there already" in said


def test_a_host_is_made_a_member_and_revoked(keys: object, state_dir: Path) -> None:
    out = state_dir / "out"
    code, said = keys("issue", "--role", "agent", "--names", "cn[1-2],cn3", "--out", str(out))  # type: ignore[operator]
    assert code == 0 and "agent cn[1-3]" in said
    membership = check_own(read_credentials(out), "agent", ["cn2"], 10**18)
    assert membership.names == "cn[1-3]" and not membership.until_us
    assert membership.serial.hex() in keys("members")[1]  # type: ignore[operator]
    assert keys("revoke", "cn9")[0] != 0  # type: ignore[operator]
    assert "revoked" in keys("revoke", "cn2")[1]  # type: ignore[operator]
    assert "revoked already" in keys("revoke", membership.serial.hex()[:8])[1]  # type: ignore[operator]
    assert keys("members")[1].rstrip().endswith("revoked")  # type: ignore[operator]
    site = read_site_keys(state_dir)
    assert ledger.read_revoked(state_dir, site).serials == {membership.serial}


def test_keys_are_replaced_one_after_the_other(keys: object, state_dir: Path) -> None:
    out = state_dir / "out"
    keys("issue", "--role", "satellite", "--names", "s1", "--out", str(out), "--days", "3")  # type: ignore[operator]
    old = read_site_keys(state_dir).signing.id.hex()
    first = read_ring(state_dir / "site.pub")
    assert "is missing" not in keys("rotate")[1]  # type: ignore[operator]
    assert "waits already" in keys("rotate")[1]  # type: ignore[operator]
    assert "signs" in keys("retire", old)[1]  # type: ignore[operator]
    assert keys("rotate", "--finish")[0] == 0  # type: ignore[operator]
    # A host that missed what came between follows all the same.
    ring = first.successor(read_ring(state_dir / "site.pub").sealed)
    assert ring is not None and ring.revision == 3
    assert "1 memberships are sealed by that key (satellite s1)" in keys("retire", old)[1]  # type: ignore[operator]
    keys("issue", "--role", "satellite", "--names", "s1", "--out", str(out))  # type: ignore[operator]
    keys("revoke", "s1")  # type: ignore[operator]
    assert keys("retire", old)[0] == 0  # type: ignore[operator]
    site = read_site_keys(state_dir)
    assert len(site.records) == 1 and len(ledger.read_revoked(state_dir, site).serials) == 2
    assert old not in keys("list")[1]  # type: ignore[operator]


def test_many_hosts_are_made_members_at_once(keys: object, state_dir: Path) -> None:
    wanted = state_dir / "wanted"
    wanted.write_text(f"satellite s1 {state_dir}/a\n\nagent cn[1-2] {state_dir}/b/c\n")
    code, said = keys("issue", "--from", str(wanted))  # type: ignore[operator]
    assert code == 0 and "satellite s1" in said and "agent cn[1-2]" in said
    assert check_own(read_credentials(state_dir / "a"), "satellite", ["s1"], 10**18)
    assert check_own(read_credentials(state_dir / "b" / "c"), "agent", ["cn2"], 10**18)


@pytest.mark.parametrize(
    ("text", "words", "says"),
    [
        ("agent cn1 a\nagent cn2\n", (), "--from (line 2): 'agent cn2' is not ROLE LIST DIR"),
        ("king cn1 a\n", (), "--from (line 1): 'king cn1 a' is not ROLE LIST DIR"),
        ("agent cn1 a\n", ("--role", "agent"), "leave out --role"),
        (None, ("--role", "agent"), "needs --role, --names and --out"),
    ],
)
def test_what_names_no_host_issues_nothing(
    keys: object, state_dir: Path, text: str | None, words: tuple[str, ...], says: str
) -> None:
    wanted = state_dir / "wanted"
    wanted.write_text(text or "")
    code, said = keys("issue", *(("--from", str(wanted)) if text else ()), *words)  # type: ignore[operator]
    assert code != 0 and says in said
    assert not ledger.read(state_dir)
