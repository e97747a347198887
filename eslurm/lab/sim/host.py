"""A simulated compute host: what survives its agent (runner, spool, blobs) and what survives a reboot.

Invariants: the agent's crash loses nothing that was written, for the kernel still has it; a reboot loses what
was not fsynced, the processes, and nothing that the step runner had made durable.
"""

from __future__ import annotations

from collections.abc import Sequence

from eslurm.lab.sim.agent_driver import AgentDriver
from eslurm.lab.sim.spool import Spool
from eslurm.lab.sim.step_runner import MemoryStepRunner, StepScript
from eslurm.lab.sim.world_view import WorldView
from eslurm.ports.step_runner import StepOutcome, StepSpec


class Host:
    """One host and the agent process on it; it serves one node or several.

    `skew_us` is how far its wall clock is before the true time; it may jump at any moment.
    """

    def __init__(self, world: WorldView, index: int, numbers: Sequence[int], skew_us: int = 0) -> None:
        self.world = world
        self.index = index
        self.numbers = tuple(numbers)
        self.skew_us = skew_us
        self.names = tuple(world.names[number] for number in numbers)
        self.address = f"agent{index}"
        self.spool = Spool()
        self.blobs: dict[bytes, None] = {}
        self.boots = 0
        self.is_down = False
        self.agent: AgentDriver | None = None
        self.runner = self._new_runner()

    @property
    def boot_id(self) -> str:
        """New at each boot."""
        return f"{self.address}-boot{self.boots}"

    @property
    def wall_us(self) -> int:
        """The wall clock of the host."""
        return self.world.scheduler.at_us + self.skew_us

    def start_agent(self) -> None:
        """Start the agent, unless it runs or the host is down."""
        if self.agent is None and not self.is_down:
            self.agent = AgentDriver(self.world, self)
            self.world.network.attach(self.agent)
            self.agent.start()

    def crash_agent(self, *, silently: bool = False) -> None:
        """The agent dies; its steps run on."""
        if self.agent is not None:
            agent, self.agent = self.agent, None
            agent.alive = False
            agent.on_crash()
            self.world.network.detach(agent, silently=silently)

    def power_off(self) -> None:
        """The host dies with everything that runs on it."""
        self.crash_agent(silently=True)
        self.is_down = True
        self.boots += 1
        self.world.checks.on_reboot(self)
        self.spool.lose(self.world.random)
        self.blobs.clear()
        self.runner.power_off(lambda key: self.world.random.random() < 0.5)

    def power_on(self) -> None:
        """The host boots; its agent starts with it."""
        if self.is_down:
            self.is_down = False
            self.start_agent()

    def on_step_ended(self, outcome: StepOutcome) -> None:
        """A step of this host is over: its agent hears of it, if there is one."""
        self.world.checks.on_step_ended(outcome)
        if self.agent is not None:
            self.agent.hear_of_end(outcome)

    def _new_runner(self) -> MemoryStepRunner:
        return MemoryStepRunner(
            self.world.scheduler,
            self.on_step_ended,
            self._script_of,
            lambda: self.wall_us,
            self.world.checks.on_ready,
        )

    def _script_of(self, spec: StepSpec) -> StepScript:
        script = self.world.script_of(spec)
        if not script.spawn_error:
            self.world.checks.on_spawn(self, spec)
        return script
