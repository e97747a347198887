"""One run from start to verdict.

Invariant: a run depends on its scenario (seed, size, plan of faults, number of requests) and the code alone, so what
failed once fails again.
"""

from __future__ import annotations

import random
import re
import traceback

import msgspec

from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.fault_schedule import FaultPlan
from eslurm.lab.sim.federation.plan import draw_federation
from eslurm.lab.sim.federation.play import play
from eslurm.lab.sim.federation.world import FederatedWorld
from eslurm.lab.sim.recovery import Patience
from eslurm.lab.sim.world import START_US, Trace, World

LOOK_EVERY_US = SECOND_US

_BRACKETED = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")
_NUMBERS = re.compile(r"\d+(\.-?\d+)*")


class Scenario(msgspec.Struct, frozen=True, omit_defaults=True):
    """The parameters of a run. `plan` None and `actions` -1: drawn from the seed; `actions` is the number of requests from
    users.

    With `cells` it is a federation of so many clusters with up to `nodes` each, and everything else is drawn.
    """

    seed: int
    nodes: int
    plan: FaultPlan | None = None
    actions: int = -1
    cells: int = 0


class Report(msgspec.Struct, frozen=True, tag=True):
    """Results of a run. `events_hash` is equal for equal runs; `virtual_s` is its duration in virtual time."""

    seed: int
    nodes: int
    messages: int
    faults: int
    commits: int
    facts: int
    jobs: int
    virtual_s: float
    events_hash: int
    paths: dict[str, int] = {}
    """Counts of rare paths, see `coverage`."""


class Failure(msgspec.Struct, frozen=True, tag=True):
    """A failed run. Failures of one `kind` have one cause, as far as is known."""

    scenario: Scenario
    kind: str
    what: str
    at_s: float
    messages: int
    faults: int

    @property
    def text(self) -> str:
        """The failure, with the commands that shrink and replay it."""
        seed, nodes = self.scenario.seed, self.scenario.nodes
        cells = f"{self.scenario.cells} cells of up to " if self.scenario.cells else ""
        told = f"seed {seed} ({cells}{nodes} nodes) failed at {self.at_s:.6f} s: {self.what}"
        if self.scenario.plan is None and self.scenario.actions < 0 and not self.scenario.cells:
            told += f"\nshrink: eslurm sim --seed {seed} --nodes {nodes} --shrink"
        return f"{told}\nreplay: {replay_of(self.scenario)}"


class SeedFailed(AssertionError):
    """A run broke an invariant. The text begins with the seed and ends with how to see it again."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure
        self.seed = failure.scenario.seed


def replay(seed: int, nodes: int, cells: int = 0) -> str:
    """The command that shows the run of a seed again."""
    federated = f" --cells {cells}" if cells else ""
    return f"eslurm sim --seed {seed} --nodes {nodes}{federated} --trace"


def replay_of(scenario: Scenario) -> str:
    """The command that shows the run of any scenario again, in one line."""
    if scenario.plan is None and scenario.actions < 0:
        return replay(scenario.seed, scenario.nodes, scenario.cells)
    return f"eslurm sim --plan '{msgspec.json.encode(scenario).decode()}' --trace"


def new_seed() -> int:
    """A random seed, most likely a new one; the only nondeterministic number here."""
    return random.SystemRandom().randrange(10**9, 10**12)


def draw_nodes(seed: int, nodes_min: int, nodes_max: int) -> int:
    """The size of a seed's cluster, small ones more often than large ones."""
    if nodes_min == nodes_max:
        return nodes_min
    share = random.Random(f"{seed}/size").random() ** 2
    return nodes_min + int(share * (nodes_max - nodes_min + 1))


def run_seed(seed: int, nodes: int, trace: Trace | None = None, until_us: int | None = None) -> Report:
    """Play a seed. Raises `SeedFailed` when anything is not as it must be.

    With `until_us` (since the start) the run stops there and only what held on the way was checked.
    """
    return run_scenario(Scenario(seed, nodes), trace, until_us)


def run_scenario(scenario: Scenario, trace: Trace | None = None, until_us: int | None = None) -> Report:
    """The same for any scenario."""
    if scenario.cells:
        return _run_federation(scenario, trace, until_us)
    world = make_world(scenario, trace)
    try:
        _play(world, until_us)
    except Exception as cause:
        raise SeedFailed(
            _failure(scenario, cause, world.scheduler.at_us, world.network.messages, world.faults.count)
        ) from cause
    return Report(
        seed=scenario.seed,
        nodes=scenario.nodes,
        messages=world.network.messages,
        faults=world.faults.count,
        commits=world.checks.commits,
        facts=world.checks.facts,
        jobs=len(world.checks.acknowledged),
        virtual_s=(world.scheduler.at_us - START_US) / SECOND_US,
        events_hash=world.events_hash,
        paths=world.coverage.counts,
    )


def _run_federation(scenario: Scenario, trace: Trace | None, until_us: int | None) -> Report:
    plan = draw_federation(scenario.seed, scenario.cells, scenario.nodes)
    world = FederatedWorld(scenario.seed, plan, trace)
    cells = [cell.world for cell in world.cells]
    cause: Exception | None = None
    try:
        play(world, until_us)
    except Exception as raised:
        cause = raised
    messages = world.network.messages + sum(cell.network.messages for cell in cells)
    faults = world.own_faults + sum(cell.faults.count for cell in cells)
    if cause is not None:
        raise SeedFailed(_failure(scenario, cause, world.scheduler.at_us, messages, faults)) from cause
    return Report(
        seed=scenario.seed,
        nodes=sum(len(cell.names) for cell in cells),
        messages=messages,
        faults=faults,
        commits=sum(cell.checks.commits for cell in cells),
        facts=sum(cell.checks.facts for cell in cells),
        jobs=sum(len(cell.checks.acknowledged) for cell in cells),
        virtual_s=(world.scheduler.at_us - START_US) / SECOND_US,
        events_hash=world.events_hash,
        paths=world.paths,
    )


def judge(scenario: Scenario, until_us: int | None = None) -> Report | Failure:
    """The verdict as a value."""
    try:
        return run_scenario(scenario, None, until_us)
    except SeedFailed as failed:
        return failed.failure


def make_world(scenario: Scenario, trace: Trace | None = None) -> World:
    """The cluster of a scenario before anything is switched on."""
    world = World(scenario.seed, scenario.nodes, trace, scenario.plan)
    if scenario.actions >= 0:
        world.actions = scenario.actions
    return world


def explicit(scenario: Scenario) -> Scenario:
    """The same scenario with everything in it that its seed would draw."""
    world = make_world(scenario)
    return msgspec.structs.replace(scenario, plan=world.faults.plan, actions=world.actions)


def kind_of(cause: BaseException) -> str:
    """The common part of failures with the same cause: no numbers, no objects, only the words.

    For an error of the code itself, not a violated invariant, the place counts as well.
    """
    words = str(cause)
    while (shorter := _BRACKETED.sub("", words)) != words:
        words = shorter
    if isinstance(cause, AssertionError) and words:
        # After the first colon comes what was seen, which may be anything.
        words = words.partition(": ")[0]
        return f"{type(cause).__name__}: {_NUMBERS.sub('#', words)}"
    frames = traceback.extract_tb(cause.__traceback__)
    return f"{type(cause).__name__} in {frames[-1].name if frames else 'nowhere'}"


def _failure(scenario: Scenario, cause: BaseException, at_us: int, messages: int, faults: int) -> Failure:
    return Failure(
        scenario=scenario,
        kind=kind_of(cause),
        what=f"{type(cause).__name__}: {cause}",
        at_s=(at_us - START_US) / SECOND_US,
        messages=messages,
        faults=faults,
    )


def _play(world: World, until_us: int | None) -> None:
    scheduler = world.scheduler
    world.start()
    if until_us is not None:
        scheduler.run(START_US + until_us)
        return
    scheduler.run(START_US + world.faults.plan.calm_us)
    patience = Patience(scheduler.at_us, has_gateways=bool(world.config.modules))
    while why := world.why_unsettled():
        patience.check(scheduler.at_us, world.jobs_left, why)
        world.set_clocks_right()
        scheduler.run(scheduler.at_us + LOOK_EVERY_US)
    world.final_check()
