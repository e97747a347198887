"""The controller's `now`: the wall clock, checked against monotonic time.

Owns the offset between the two. Invariants: `now` never goes back; between two readings it moves by the elapsed monotonic
time, give or take a tenth, plus at most one bound of leaps forward (which are earned anew as slowly). So neither a jump of
a wall clock nor a successor with another clock fires time-outs in masses or holds them back.
"""

from __future__ import annotations

import msgspec

from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.units import SECOND_US

BOUND_US = 60 * SECOND_US
SLEW = 10
"""One part in so many of the monotonic time that passes may be made up or held back."""
MARGIN_PARTS = 4


class ClockAlarm(msgspec.Struct, frozen=True, gc=False):
    """The wall clock jumped by `jump_us` against monotonic time (negative: back); it then was `ahead_us` ahead of `now`."""

    jump_us: int
    ahead_us: int


def leap_bound_us(config: ClusterConfig) -> int:
    """The greatest leap of `now` that this configuration allows, at most a minute.

    The controller gives a silent node up by `now`, the node kills by its own clock: a leap must not use up the time in
    between.
    """
    margin_s = config.node_lost_after_s - config.orphan_timeout_s - config.kill_grace_s
    return max(0, min(BOUND_US, int(margin_s * SECOND_US) // MARGIN_PARTS))


def earliest_loss_s(config: ClusterConfig) -> float:
    """Seconds of real time, at the least, between a node's silence and its loss: `now` may leap, and run a tenth fast."""
    leap_s = leap_bound_us(config) / SECOND_US
    return (config.node_lost_after_s - leap_s) * SLEW / (SLEW + 1)


def loss_slack_s(config: ClusterConfig) -> float:
    """Seconds between the death of an orphaned attempt and the earliest loss of its node; must be above 0."""
    return earliest_loss_s(config) - config.orphan_timeout_s - config.kill_grace_s


def lost_after_min_s(dead_s: float) -> float:
    """Lower bound of `node_lost_after_s` when attempts die after this many seconds of silence."""
    # With x above them a quarter of x may be leapt over: (dead + x - x / 4) * 10 / 11 > dead.
    return dead_s + dead_s / SLEW * MARGIN_PARTS / (MARGIN_PARTS - 1)


def proof_lasts_us(config: ClusterConfig) -> int:
    """Validity of a renewal as proof of the lead (see `contact`): half of the slack; the rest is for kills and clock
    drift.
    """
    return max(0, int(loss_slack_s(config) * SECOND_US) // 2)


def lost_after_s(config: ClusterConfig, dead_s: float = 0.0) -> float:
    """Silence in seconds after which a node with attempts that may live for `dead_s` is lost: as configured, or later."""
    dead_s += proof_lasts_us(config) / SECOND_US
    if earliest_loss_s(config) >= dead_s:
        return config.node_lost_after_s
    return dead_s * (SLEW + 1) / SLEW + leap_bound_us(config) / SECOND_US


class Timekeeper:
    """The clock of one leading controller. `floor_us` is the time of the last commit of any leader.

    Call `read` with both clocks for each batch; `monotonic_us` should include a host's sleep (CLOCK_BOOTTIME).
    """

    def __init__(self, floor_us: int = 0, bound_us: int = BOUND_US) -> None:
        if bound_us < 0:
            raise ValueError(f"a bound of {bound_us} us is none")
        self._now_us = floor_us
        self._bound_us = bound_us
        self._monotonic_us: int | None = None
        self._wall_offset_us = 0
        # Time that has passed and was not used for a slew yet, in the parts that one microsecond takes.
        self._unused = 0
        self._leap_left_us = bound_us
        self._is_slewing = False
        self._alarm: ClockAlarm | None = None

    @property
    def is_slewing(self) -> bool:
        """Check whether `now` is moving slowly towards the wall clock."""
        return self._is_slewing

    def read(self, wall_us: int, monotonic_us: int) -> int:
        """The current time. A monotonic clock that goes back counts as one that stands."""
        if self._monotonic_us is None:
            return self._begin(wall_us, monotonic_us)
        elapsed_us = max(0, monotonic_us - self._monotonic_us)
        self._monotonic_us += elapsed_us
        self._unused += elapsed_us
        slew_us, self._unused = divmod(self._unused, SLEW)
        self._now_us += elapsed_us
        self._notice(wall_us)
        self._correct(wall_us - self._now_us, slew_us)
        return self._now_us

    def take_alarm(self) -> ClockAlarm | None:
        """The last jump above the bound, once."""
        alarm, self._alarm = self._alarm, None
        return alarm

    def _begin(self, wall_us: int, monotonic_us: int) -> int:
        """Begin at the first reading: accept a wall clock that is ahead, wait for one that is behind the last commit."""
        self._monotonic_us = monotonic_us
        self._wall_offset_us = wall_us - monotonic_us
        behind_us = self._now_us - wall_us
        self._is_slewing = behind_us > 0
        if behind_us > self._bound_us:
            self._alarm = ClockAlarm(-behind_us, -behind_us)
        self._now_us = max(self._now_us, wall_us)
        return self._now_us

    def _notice(self, wall_us: int) -> None:
        assert self._monotonic_us is not None
        offset_us = wall_us - self._monotonic_us
        jump_us = offset_us - self._wall_offset_us
        self._wall_offset_us = offset_us
        if abs(jump_us) > self._bound_us:
            self._alarm = ClockAlarm(jump_us, wall_us - self._now_us)

    def _correct(self, error_us: int, slew_us: int) -> None:
        """Move towards the wall clock: a small step forward at once, anything else at the rate of `slew_us`."""
        if error_us > 0 and not self._is_slewing and error_us <= self._leap_left_us + slew_us:
            self._now_us += error_us
            self._leap_left_us = min(self._bound_us, self._leap_left_us + slew_us - error_us)
            return
        step_us = min(abs(error_us), slew_us)
        self._now_us += step_us if error_us > 0 else -step_us
        self._is_slewing = abs(error_us) > step_us
        if error_us <= 0:
            self._leap_left_us = min(self._bound_us, self._leap_left_us + slew_us)
