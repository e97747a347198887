"""Contact: which answers of a node the controller has heard, so that no job ever has two live attempts.

A node ends a requeueable attempt when its contact is older than `orphan_timeout_s`; the controller starts the job again
when the node has been silent for `node_lost_after_s`. Owns both ends of what the two agree on: `HeardRounds` at the
controller, `AnsweredRounds` at the agent, and how a heartbeat carries it.

A leader numbers its heartbeats: rounds of its epoch. The agent remembers when, by its own clock, it answered each of
the last rounds. The heartbeat of round k says which earlier round j the leader has heard each node in; the node's
contact then is the time at which the agent *answered* j, never the time at which k arrived. An accepted registration
counts as of the time at which it was first sent.

Invariant: a contact c is followed by no loss of the node before c + `node_lost_after_s`, as a leader measures it.
Proof:

1. A node takes j as confirmed only if the leader has an answer of this registration to j: agents use the rounds from
   the first one that names their incarnation, which the controller has given to this process alone. The agent answers
   before the leader hears it, so c <= t, the time of hearing.
2. The leader confirms for nodes alone that are UP in its state. It gives them up no earlier than `node_lost_after_s`
   after a later fact that says UNREACHABLE, so after t. A node that it has given up has no attempt left that contact
   could keep alive.
3. The leader confirms an answer only if t <= p + `proof_lasts_us`, where p is the time at which its last successful
   renewal of the lead began. Another leader has won the lead after p, and its clock of each node's loss starts then or
   later.
4. The supervisor kills at c + orphan_timeout_s + kill_grace_s by CLOCK_BOOTTIME. A configuration is refused unless
   this, with `proof_lasts_us` added, is over before the earliest loss: the leader's clock may leap once and run a tenth
   too fast (`timekeeping.earliest_loss_s`). Clocks of hosts need not agree.

Late, repeated and reordered heartbeats do no harm: the first copy dates a round, a round that was forgotten is never
dated again, and a contact never goes back. A leader does not count answers that come after their round is over, so it
does not confirm them either. A launch is no contact: the supervisor refuses one when the node's contact is too old. A
controller of an earlier release numbers no rounds: then, as in that release, a heartbeat counts as it arrives, and the
promise is the weaker one until the controller is updated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import accumulate

KEPT_MAX = 64
"""Rounds that an agent remembers, and that wait at a leader for a proof of its lead."""
NO_ROUND = 0


class Heard:
    """Content of a heartbeat: `default` is the round in which the called nodes were heard, `exceptions` the deviations.

    `exceptions` are triples: the gap to the end of the previous run, the length of the run of node numbers, and the number
    of rounds it is behind the default; 0: no round is confirmed.
    """

    __slots__ = ("_behind", "_default", "_ends", "_starts")

    def __init__(self, default: int, exceptions: Sequence[int]) -> None:
        self._default = default
        steps = [0] * (len(exceptions) // 3 * 2)
        steps[::2] = exceptions[: len(exceptions) - 2 : 3]
        steps[1::2] = exceptions[1 : len(exceptions) - 1 : 3]
        bounds = list(accumulate([step if step > 0 else 0 for step in steps]))
        self._starts, self._ends, self._behind = bounds[::2], bounds[1::2], exceptions[2::3]

    def round_of(self, node: int) -> int:
        """The last round in which the leader heard this node; 0: none is confirmed."""
        at = bisect_right(self._starts, node) - 1
        if at < 0 or node >= self._ends[at]:
            return self._default
        behind = self._behind[at]
        return self._default - behind if behind else NO_ROUND


class AnsweredRounds:
    """The rounds that an agent answered, with their times, per owner. Times are microseconds of the agent's clock."""

    __slots__ = ("_at_us", "_epoch", "_forgotten")

    def __init__(self) -> None:
        self._epoch = 0
        self._at_us: dict[int, int] = {}
        self._forgotten = 0

    def numbers(self, epoch: int) -> bool:
        """Check whether the leader of this epoch numbers its rounds."""
        return epoch == self._epoch and bool(self._at_us)

    def note(self, epoch: int, number: int, now_us: int) -> None:
        """Record the answer to a heartbeat of this round. Copies and forgotten rounds change nothing."""
        if epoch != self._epoch:
            self._epoch, self._at_us, self._forgotten = epoch, {}, 0
        if number <= self._forgotten or number in self._at_us:
            return
        self._at_us[number] = now_us
        if len(self._at_us) > KEPT_MAX:
            self._forgotten = min(self._at_us)
            del self._at_us[self._forgotten]

    def answered_us(self, number: int) -> int | None:
        """Time of the first answer to this round; None when there was none or it is forgotten."""
        return self._at_us.get(number)


class HeardRounds:
    """The last round in which the leader heard each node. Times are microseconds of one clock that also counts while the
    host sleeps.
    """

    def __init__(self, proof_lasts_us: Callable[[], int]) -> None:
        """`proof_lasts_us`: validity of a renewal as proof of the lead, see the module."""
        self._proof_lasts_us = proof_lasts_us
        self._proved_us: int | None = None
        self._number = 0
        self._heard: dict[int, int] = {}
        self._unproved: deque[tuple[int, int, Sequence[int]]] = deque(maxlen=KEPT_MAX)

    def next_number(self) -> int:
        """Number of the round that begins now."""
        self._number += 1
        return self._number

    def on_answers(self, number: int, reached: Sequence[int], now_us: int) -> None:
        """Record that these nodes answered the round."""
        self._unproved.append((now_us, number, reached))
        self._count()

    def on_proved(self, began_us: int) -> None:
        """Note a renewal of the lead that began then: no other controller had won it before."""
        self._proved_us = max(began_us, self._proved_us or began_us)
        self._count()

    def told(self, nodes: Sequence[int], is_up: Callable[[int], bool]) -> tuple[int, tuple[int, ...]]:
        """The content of a heartbeat to these nodes, as in `Heard`: (default, exceptions)."""
        find = self._heard.get
        ordered = sorted(nodes)
        rounds = [find(node, NO_ROUND) if is_up(node) else NO_ROUND for node in ordered]
        counts = Counter(rounds)
        del counts[NO_ROUND]
        if not counts:
            return NO_ROUND, ()
        default = counts.most_common(1)[0][0]
        runs: list[list[int]] = []
        for node, number in zip(ordered, rounds, strict=True):
            if number == default:
                continue
            behind = default - number if number else 0
            if runs and runs[-1][2] == behind and runs[-1][0] + runs[-1][1] == node:
                runs[-1][1] += 1
            else:
                runs.append([node, 1, behind])
        end = 0
        flat: list[int] = []
        for start, length, behind in runs:
            flat += (start - end, length, behind)
            end = start + length
        return default, tuple(flat)

    def _count(self) -> None:
        if self._proved_us is None:
            return
        until_us = self._proved_us + self._proof_lasts_us()
        while self._unproved and self._unproved[0][0] <= until_us:
            _, number, reached = self._unproved.popleft()
            for node in reached:
                if self._heard.get(node, NO_ROUND) < number:
                    self._heard[node] = number
