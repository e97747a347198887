"""Steps under memory, process and CPU limits of the kernel, and what is told of their ends: a line for each check.

It needs root, cgroup v2 with its controllers, and nothing else that runs there; so it runs in a machine of its own
(`scripts/contained.sh`).
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from eslurm.ports.step_runner import StepEndCause, StepSpec
from esnoded.procd import groups
from esnoded.stepd.place import Place
from tests.kits.stepd import NOBODY, Outcomes, Site, SpecClient, eventually, key, supervised

PYTHON = "#!/usr/local/bin/python3 -IS\n"
HOG = (
    PYTHON
    + "import time\nopen('begun', 'w').write(str(time.time()))\nkept = []\nwhile True: kept.append(bytearray(4 << 20))\n"
)
BOMB = "bomb() { bomb & bomb; }; bomb 2> /dev/null"
WORK = (
    PYTHON
    + "import os\nkept = bytearray(%d << 20)\nx = 0\nfor _ in range(%d):\n    x += 1\nprint(sum(os.times()[:2]))\n"
)
SHORT_S = 1.0
ROUNDS = 25

SAY_CORES = """#!/usr/local/bin/python3
import os, sys
from eslurm.ports.step_runner import OutputEndpoint, StepSpec
from esnoded.task.cpu_binding import bind_task
from eslurm.core.model.step_key import StepKey
os.sched_setaffinity(0, range(64))
had = os.sched_getaffinity(0)
env = {"SLURM_CPUS_PER_TASK": "1"}
listener = OutputEndpoint("127.0.0.1", 1, b"")
step = StepSpec(StepKey(1, 1, 0, 0), "cn1", 0, 0, ("true",), env, "/", endpoint=listener, tasks=2, cores=2)
bound = bind_task(step, 1, 2)
print(*had, bound.get("SLURM_CPU_BIND"), *os.sched_getaffinity(0))
"""
"""What a task of a step of two tasks may use, without and with cores of its own."""

Check = Callable[[Site, SpecClient, Outcomes], Awaitable[str]]


class Failed(Exception):
    """A check did not hold; the text says what was seen."""


def require(holds: object, what: str) -> None:
    """Raises `Failed`."""
    if not holds:
        raise Failed(what)


def spec(site: Site, number: int, program: str, **fields: object) -> StepSpec:
    """A step of another user."""
    return site.spec(key(number), program, **({"uid": NOBODY, "gid": NOBODY, "cores": 1} | fields))


def _read(site: Site, number: int, name: str) -> str:
    path = os.path.dirname(groups.path_of(Place(site.state).read_groups(), key(number)))
    return Path(path, name).read_text().strip()


async def limits_are_those_of_the_job(site: Site, client: SpecClient, outcomes: Outcomes) -> str:
    gate = site.work / "gate"
    os.mkfifo(gate, 0o666)
    gate.chmod(0o666)
    await client.launch(spec(site, 1, site.script("read line < gate"), cores=3, memory_mib=123))
    found = {name: _read(site, 1, name) for name in ("memory.max", "pids.max", "cpu.weight")}
    gate.write_text("go\n")
    await outcomes.of(key(1))
    require(
        found == {"memory.max": str(123 << 20), "pids.max": "32768", "cpu.weight": "300"}, f"limits: {found}"
    )
    return str(found)


async def a_job_over_its_memory_is_ended_alone(site: Site, client: SpecClient, outcomes: Outcomes) -> str:
    """Ended at once, time after time; its neighbour, the supervisor and `procd` go on."""
    hog = site.script(HOG, "hog")
    gate = site.work / "gate"
    neighbour = spec(site, 9_000, site.script("read line < gate; exit 7", "neighbour"), memory_mib=64)
    await client.launch(neighbour)
    before = site.pid()
    took: list[float] = []
    for number in range(100, 100 + ROUNDS):
        await client.launch(spec(site, number, hog, memory_mib=48))
        outcome = await outcomes.of(key(number))
        took.append(outcome.ended_us / 1e6 - float((site.work / "begun").read_text()))
        require(outcome.cause is StepEndCause.OUT_OF_MEMORY, f"round {number}: {outcome}")
        require("its job may use 48 MiB on node cn1" in outcome.text, outcome.text)
    require(site.pid() == before, "the supervisor is another one")
    gate.write_text("go\n")
    outcome = await outcomes.of(key(9_000))
    require(outcome.exit_code == 7 and outcome.cause is StepEndCause.EXITED, f"the neighbour: {outcome}")
    require(max(took) <= 5 * SHORT_S, f"the slowest took {max(took):.2f} s")
    return f"{ROUNDS} times, median {statistics.median(took):.2f} s, slowest {max(took):.2f} s: {outcome_text(outcomes)}"


def outcome_text(outcomes: Outcomes) -> str:
    """The text of the last step that ran out of memory."""
    return next(one.text for one in reversed(outcomes.heard) if one.cause is StepEndCause.OUT_OF_MEMORY)


async def one_step_of_a_job_ends_and_the_other_goes_on(
    site: Site, client: SpecClient, outcomes: Outcomes
) -> str:
    gate = site.work / "gate"
    batch, step = key(2), key(2, step=0)
    common = {"uid": NOBODY, "gid": NOBODY, "cores": 1, "memory_mib": 96}
    await client.launch(site.spec(batch, site.script("read line < gate; exit 5", "batch"), **common))
    await client.launch(site.spec(step, site.script(HOG, "hog"), **common))
    ended = await outcomes.of(step)
    gate.write_text("go\n")
    script = await outcomes.of(batch)
    require(ended.cause is StepEndCause.OUT_OF_MEMORY, f"the step: {ended}")
    require(script.exit_code == 5 and script.cause is StepEndCause.EXITED, f"the script: {script}")
    return ended.text


async def a_fork_bomb_stays_in_its_job(site: Site, client: SpecClient, outcomes: Outcomes) -> str:
    """It fills its group, nothing else; cancelled, it is gone at once, and others start meanwhile."""
    await client.launch(spec(site, 3, site.script(BOMB, "bomb"), memory_mib=256))
    await eventually(lambda: int(_read(site, 3, "pids.current")) >= 100)
    began = time.monotonic()
    await client.launch(spec(site, 4, "true"))
    require((await outcomes.of(key(4))).exit_code == 0, "another step did not run")
    other_s = time.monotonic() - began
    began = time.monotonic()
    await client.terminate(key(3), StepEndCause.SIGNALLED, 0)
    outcome = await outcomes.of(key(3))
    took_s = time.monotonic() - began
    require(took_s <= 10 * SHORT_S, f"it took {took_s:.1f} s to end it: {outcome}")
    return f"another step ran in {other_s:.1f} s, the bomb was gone in {took_s:.1f} s ({outcome.cause})"


async def processor_time_is_what_the_step_used(site: Site, client: SpecClient, outcomes: Outcomes) -> str:
    """Within 2 % of `getrusage` for a process that is waited for."""
    script = site.script(WORK % (32, 3_000_000), "work")
    step = spec(site, 5, script, stdout=str(site.work / "said"), memory_mib=256)
    await client.launch(step)
    outcome = await outcomes.of(key(5))
    counted = (outcome.user_cpu_us + outcome.system_cpu_us) / 1e6
    said = float((site.work / "said").read_text())
    require(abs(counted - said) <= 0.02 * said + 0.15, f"counted {counted:.2f} s, used {said:.2f} s")
    return f"counted {counted:.2f} s, used {said:.2f} s"


async def shares_follow_cores(site: Site, client: SpecClient, outcomes: Outcomes) -> str:
    """Two jobs that want all cores get them as they have cores: three to one."""
    spin = "for i in 1 2 3 4; do while :; do :; done & done; wait"
    script = site.script(spin, "spin")
    await client.launch(spec(site, 6, script, cores=3))
    await client.launch(spec(site, 7, script, cores=1))
    await asyncio.sleep(8)
    used = [
        int(next(line.split()[1] for line in _read(site, number, "cpu.stat").splitlines() if "usage" in line))
        for number in (6, 7)
    ]
    for number in (6, 7):
        await client.terminate(key(number), StepEndCause.SIGNALLED, 0)
        await outcomes.of(key(number))
    ratio = used[0] / used[1]
    require(2 <= ratio <= 4.5, f"{ratio:.1f} to one")
    return f"{ratio:.1f} to one"


async def jobs_have_cores_of_their_own(site: Site, client: SpecClient, outcomes: Outcomes) -> str:
    """Two of one core each have one each, a third one runs on all, and one of two cores has both when they are gone. No
    task gets out of them.
    """
    say = site.script(SAY_CORES, "say")
    numbers = range(20, 23)
    for number in numbers:
        gate = site.work / f"gate{number}"
        os.mkfifo(gate, 0o666)
        gate.chmod(0o666)
        script = site.script(f"read line < {gate}; exec {say}", f"waiting{number}")
        await client.launch(spec(site, number, script, stdout=str(site.work / f"said{number}")))
    sets = [_read(site, number, "cpuset.cpus") for number in numbers]
    for number in numbers:
        (site.work / f"gate{number}").write_text("go\n")
        await outcomes.of(key(number))
    said = [(site.work / f"said{number}").read_text().strip() for number in numbers]
    await client.launch(spec(site, 23, say, cores=2, stdout=str(site.work / "said23")))
    await outcomes.of(key(23))
    said.append((site.work / "said23").read_text().strip())
    require(sets == ["0", "1", ""], f"core sets: {sets}")
    require(
        said == ["0 quiet,none 0", "1 quiet,none 1", "0 1 None 0 1", "0 1 quiet,mask_cpu:0x1,0x2 1"],
        f"tasks: {said}",
    )
    return f"{said}"


CHECKS: tuple[Check, ...] = (
    limits_are_those_of_the_job,
    a_job_over_its_memory_is_ended_alone,
    one_step_of_a_job_ends_and_the_other_goes_on,
    a_fork_bomb_stays_in_its_job,
    processor_time_is_what_the_step_used,
    shares_follow_cores,
)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def _all(site: Site, checks: Sequence[Check]) -> int:
    failures = 0
    outcomes = Outcomes()
    async with site.client(outcomes) as client:
        for check in checks:
            began = time.monotonic()
            words, told = check.__name__.replace("_", " "), "ok"
            assert isinstance(client, SpecClient)
            try:
                found = await check(site, client, outcomes)
            except (Failed, TimeoutError) as error:
                found, told = str(error) or "no end in time", "FAILED"
                failures += 1
            _say(f"{told:6} {time.monotonic() - began:5.1f} s  {words}: {found}")
    return failures


def main() -> int:
    """The number of checks that failed."""
    return _run(CHECKS, bind_cores=False) + _run((jobs_have_cores_of_their_own,), bind_cores=True)


def _run(checks: Sequence[Check], *, bind_cores: bool) -> int:
    with tempfile.TemporaryDirectory() as name:
        with supervised(Path(name)) as site:
            site.options = replace(site.options, bind_cores=bind_cores)
            site.start()
            base = Place(site.state).read_groups()
            _say(f"groups: {base}, with {Path(base, 'cgroup.subtree_control').read_text().strip()}")
            failures = asyncio.run(_all(site, checks))
        left = [one for one in Path(base).glob("*") if one.is_dir()] if os.path.isdir(base) else []
        if left:
            _say(f"FAILED left: {left}")
        return failures + bool(left)


if __name__ == "__main__":
    sys.exit(main())
