"""Directories of a job's own: what other jobs and the host see of them, and what is left; rights that a job cannot gain."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from eslurm.core.model.step_key import EPILOG_STEP
from eslurm.ports.step_runner import StepOutcome, StepSpec
from esnoded.procd import procfs
from esnoded.stepd.client import SupervisorClient
from esnoded.stepd.place import Place
from tests.integration.conftest import running
from tests.kits.stepd import NOBODY, Outcomes, Site, eventually, key, supervised
from tests.kits.stepd_processes import outcome_of, play
from tests.support.groups import as_root

pytestmark = as_root
SHARED = Path("/dev/shm")
NAME = "of-a-job"


@pytest.fixture
def site(state_dir: Path) -> Iterator[Site]:
    with supervised(state_dir) as opened:
        opened.options = replace(opened.options, private_dirs=(str(SHARED),), private_dirs_mib=1)
        opened.start()
        yield opened


def spec(site: Site, job: int, text: str, *, uid: int = NOBODY, step: int = -1, attempt: int = 1) -> StepSpec:
    program = site.script(f"exec 2>&1\ncd {SHARED}\n{text}", f"script-{job}-{attempt}-{step}")
    name = site.work / f"out-{job}-{attempt}-{step}"
    return site.spec(key(job, attempt=attempt, step=step), program, uid=uid, gid=uid, stdout=str(name))


def output(outcome: StepOutcome, site: Site) -> str:
    one = outcome.key
    return (site.work / f"out-{one.job_id}-{one.attempt}-{one.step}").read_text()


def namespaces(site: Site) -> set[str]:
    return namespaces_of(site.pid())


def namespaces_of(pid: int) -> set[str]:
    """Mount namespaces that the root part keeps open."""
    links = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        # It may have closed one since they were listed.
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(path))
    return {link for link in links if link.startswith("mnt:")}


def test_steps_of_a_job_share_its_directories_and_nothing_else_sees_them(site: Site) -> None:
    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        async def run(one: StepSpec) -> StepOutcome:
            await client.launch(one)
            return await outcomes.of(one.key)

        assert (await run(spec(site, 1, f"echo hello > {NAME}"))).exit_code == 0
        assert not (SHARED / NAME).exists()
        mate = await run(spec(site, 1, f"cat {NAME}; ls | wc -l", step=0))
        assert output(mate, site).split() == ["hello", "1"]
        for other in (
            spec(site, 2, "ls -A"),
            spec(site, 1, "ls -A", attempt=2),
            spec(site, 3, "ls -A", uid=0),
        ):
            assert output(await run(other), site) == ""
        assert len(namespaces(site)) == 4

    play(site, scenario)


def test_what_a_job_left_is_gone_when_its_attempt_has_left_the_node(site: Site) -> None:
    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        for one in (spec(site, 1, f"echo hello > {NAME}"), spec(site, 2, "true")):
            await client.launch(one)
            await outcomes.of(one.key)
        before = namespaces(site)
        await client.vacate([(0, 1, 1), (5, 5, 5)])
        await eventually(lambda: len(namespaces(site)) == 1)
        assert namespaces(site) < before
        late = spec(site, 1, "ls -A", step=1)
        await client.launch(late)
        assert output(await outcomes.of(late.key), site) == ""

    play(site, scenario)


def test_a_job_fills_its_directories_and_not_the_node_s(site: Site) -> None:
    ended = outcome_of(site, spec(site, 1, "head -c 2000000 /dev/zero > big"))
    assert ended.exit_code != 0 and "No space left" in output(ended, site)
    assert outcome_of(site, spec(site, 2, "head -c 900000 /dev/zero > big")).exit_code == 0


def test_nothing_gains_rights_or_makes_devices_in_them(site: Site) -> None:
    """Attack: a job of root's leaves a program for all in a directory of its own."""
    text = (
        f"cp /usr/bin/id . && chmod 4755 id && setpriv --reuid {NOBODY} ./id -u; mknod d c 1 3; head -c 1 < d"
    )
    ended = outcome_of(site, spec(site, 1, text, uid=0))
    words = output(ended, site)
    assert words.split()[0] == str(NOBODY)
    assert "Permission denied" in words


def test_another_user_does_not_reach_them_through_a_process(site: Site) -> None:
    """Attack: walk through /proc into the directories of another user's job."""

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        os.mkfifo(site.work / "gate")
        (site.work / "gate").chmod(0o666)
        lives = spec(site, 1, f"echo secret > {NAME}; echo $$ > {site.work}/pid; read go < {site.work}/gate")
        (site.work / "pid").touch()
        (site.work / "pid").chmod(0o666)
        await client.launch(lives)
        await eventually(lambda: (site.work / "pid").read_text())
        pid = (site.work / "pid").read_text().strip()
        for uid, seen in ((NOBODY - 1, False), (NOBODY, True)):
            thief = spec(site, 2, f"cat /proc/{pid}/root{SHARED}/{NAME}", uid=uid, attempt=1 + seen)
            await client.launch(thief)
            ended = await outcomes.of(thief.key)
            # A user's own jobs are of the same user: nothing is hidden between them.
            assert (output(ended, site) == "secret\n") is seen
        (site.work / "gate").write_text("go\n")
        await outcomes.of(lives.key)

    play(site, scenario)


def test_phases_see_the_host_s_directories(site: Site) -> None:
    (SHARED / NAME).touch()
    try:
        one = spec(site, 1, f"test -e {NAME}")
        assert outcome_of(site, one).exit_code == 1
        phase = replace(one, key=key(1, step=EPILOG_STEP), stdout="")
        assert outcome_of(site, phase).exit_code == 0
    finally:
        (SHARED / NAME).unlink()


def test_the_root_part_itself_stays_where_it_was(site: Site) -> None:
    own = os.readlink("/proc/self/ns/mnt")
    outcome_of(site, spec(site, 1, "true"))
    assert os.readlink(f"/proc/{site.pid()}/ns/mnt") == own
    assert {os.readlink(f"/proc/{one.pid}/ns/mnt") for one in procfs.own_children()} <= {own}


def test_a_directory_that_is_gone_fails_the_step_and_says_which(state_dir: Path) -> None:
    with supervised(state_dir) as site:
        lost = site.work / "lost"
        site.options = replace(site.options, private_dirs=(str(SHARED), str(lost)))
        site.start()
        ended = outcome_of(site, spec(site, 1, "true"))
        assert ended.exit_code == 1 and f"cannot mount {lost}" in ended.text
        assert namespaces(site) == set()
        lost.mkdir()
        assert outcome_of(site, spec(site, 2, f"touch {lost}/x")).exit_code == 0
        assert list(lost.iterdir()) == []


@pytest.mark.parametrize("allowed", [False, True])
def test_set_user_id_programs_gain_no_rights_unless_the_site_lets_them(
    state_dir: Path, allowed: bool
) -> None:
    with supervised(state_dir) as site:
        site.options = replace(site.options, allow_set_user_id=allowed)
        site.start()
        program = site.work / "id"
        shutil.copy("/usr/bin/id", program)
        program.chmod(0o4755)
        one = spec(site, 1, f"{program} -u; grep NoNewPrivs /proc/self/status")
        ended = outcome_of(site, one)
        uid, _, locked = output(ended, site).split()
        assert (uid, locked) == (("0", "0") if allowed else (str(NOBODY), "1"))


def test_an_agent_lets_go_of_them_when_the_job_has_left_its_node() -> None:
    with running(nodes=1, agents=1, satellites=1) as cluster:
        cluster.terminate("agent0")
        cluster.daemons["agent0"].words += ["--private-dirs", str(SHARED)]
        cluster.start()
        cluster.wait_nodes(lambda nodes: all(node.incarnation > 1 for node in nodes.values()))
        gate = cluster.work / "gate"
        os.mkfifo(gate)
        job = cluster.wrap(
            f"touch {SHARED}/{NAME}; ls {SHARED} > seen; read go < gate", "-D", str(cluster.work)
        )
        assert cluster.wait_lines("seen") == [NAME]
        status = Place(cluster.directory / "agent0").find_supervisor()
        assert status is not None and len(namespaces_of(status.pid)) == 1
        assert not (SHARED / NAME).exists()
        gate.write_text("go\n")
        assert cluster.end(job) == "COMPLETED"
        cluster.until(lambda: not namespaces_of(status.pid) or None, "the namespace of the job is let go")
