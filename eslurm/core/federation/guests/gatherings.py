"""Nodes of other cells for spanning jobs of this cell: asked for, kept while the job runs, given back (S-05, S-06, ADR 32).

A gathering asks all cells of a split at once. Either all hold their nodes within some seconds and the job starts, or all
are given back, and the job rests for a random time: two large jobs that want the same nodes do not meet for ever. Nodes that
are held idle cost others their start, so a gathering that holds some waits for the rest for a few seconds only.
Invariants: the log decides, so this machine may begin anew at any time; it forgets no guest before that has ended, or
cannot be kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from eslurm.core.federation.actions import AskGuest, CellAnswer, TellGuest
from eslurm.core.federation.guests.split import split
from eslurm.core.federation.transfers.agenda import Agenda
from eslurm.core.federation.transfers.commits import Commits
from eslurm.core.federation.view import FederationView
from eslurm.core.model.guests import Guest, Guests, GuestStage
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.model.messages import (
    AskGuests,
    GiveUpGuests,
    HoldGuests,
    LoseGuest,
    NoteGuestGone,
)

FIRST_US: Final = 1_000_000
"""From the first sight of a job that its own cell can run to its first gathering: that cell's plan comes first."""
VIEW_US: Final = 200_000
"""Interval of looks whether a cell has become freer, while jobs wait for that."""
WAKE_MAX: Final = 16
"""Jobs that try again at once when a cell has become freer."""
SOON_US: Final = 2_000_000
"""A job that its own cell starts within this time gathers no nodes."""
LOOK_US: Final = 150_000
"""Interval of looks at guests that do not hold their nodes yet."""
KEPT_LOOK_US: Final = 5_000_000
"""Interval of looks at guests of a job that runs."""
AGAIN_US: Final = 500_000
AGAIN_MAX_US: Final = 10_000_000
"""Pauses after a call without an answer: the first, and the longest; each is twice the one before."""
REST_MIN_US: Final = 1_000_000
REST_MAX_US: Final = 8_000_000
"""Bounds of the random rest of a job between two gatherings, which doubles."""
AVOID_US: Final = 20_000_000
"""Time for which a job does not ask a cell that has refused its part."""
BUSY_US: Final = 5_000_000
"""And a cell whose nodes others had."""
LACK_US: Final = 3_000_000
"""Time for which nodes are held while a guest in another cell waits in the queue there."""
OWN_US: Final = 5_000_000
"""Time for which all guests hold their nodes while the job's own part is not free."""
YIELD_US: Final = 500_000
"""And both for a job that meets an older one of another cell, which has a guest here."""
SLOW_TIMES: Final = 4
"""Up to `OWN_US`, each of the three is at least so many times what the slowest answer took: cells that are slow to answer
are slow to give nodes, and to give them back."""
YIELDS_MAX: Final = 3
"""Times in a row that a job gives way: a cell that always claims to have the oldest job keeps no other from its nodes."""
GATHERINGS_MAX: Final = 8
"""Jobs for which nodes are being asked for at the same time."""
FORSAKE_US: Final = 120_000_000
"""A guest that is not needed any more and whose cell does not answer for so long is forgotten: it ends by itself there."""
STEPS_MAX: Final = 64
CALLS_MAX: Final = 64
TEXT_MAX: Final = 200


class _Part(msgspec.Struct, gc=False):
    """One guest as far as this leader knows it."""

    job_id: int = 0
    node_list: str = ""
    call: AskGuest | TellGuest | None = None
    called_us: int = 0
    calls: int = 0
    misses: int = 0
    call_at_us: int = 0
    is_waiting: bool = False
    is_kept: bool = False
    is_ended: bool = False
    ending_us: int = 0
    text: str = ""


class _Spanning(msgspec.Struct, gc=False):
    """A job and the guests of its present serial."""

    job: Job
    rest_until_us: int
    rests: int = 0
    own_max: int = 0
    """Most own nodes of the next gathering; 0: any number."""
    must_rest: bool = False
    lacks_nodes: bool = False
    wished: tuple[Guest, ...] = ()
    """Guests that the log does not know yet."""
    serial: int = 0
    is_fresh: bool = False
    slowest_us: int = 0
    """The longest time that a cell took to answer, since this serial's guests were asked for."""
    idle_since_us: int | None = None
    """Since when nodes are held and others, of a cell or the job's own, are missing; None: not now."""
    parts: dict[str, _Part] = msgspec.field(default_factory=dict)
    avoid: dict[str, int] = msgspec.field(default_factory=dict)
    text: str = ""


class Gatherings:
    """Feed it with spanning jobs and answers, and `tick` it.

    `wait_us` is the time until this cell starts a job by its own plan; None: it does not know. `may_gather` says whether
    nothing but nodes keeps a waiting job from starting; `has_elder` whether an older job of another cell gathers nodes here.
    """

    def __init__(
        self,
        observe: Callable[[int], FederationView],
        wait_us: Callable[[int], int | None],
        may_gather: Callable[[Job], bool],
        commits: Commits,
        has_elder: Callable[[Job], bool] = lambda _: False,
    ) -> None:
        self.counts: Counter[str] = Counter()
        """Gatherings by what became of them."""
        self._observe = observe
        self._wait_us = wait_us
        self._may_gather = may_gather
        self._commits = commits
        self._has_elder = has_elder
        self._jobs: dict[int, _Spanning] = {}
        self._agenda = Agenda()
        self._calls = 0
        self._free_nodes: dict[str, int] = {}
        self._view_at_us = 0

    @property
    def size(self) -> int:
        """Number of jobs that may span cells, or do."""
        return len(self._jobs)

    @property
    def held(self) -> int:
        """Number of guests in other cells."""
        return sum(len(one.job.guests.guests) for one in self._jobs.values() if one.job.guests is not None)

    def reasons(self, job_id: int) -> Mapping[str, str]:
        """By cell why this waiting job has no nodes there; the own cell's name is empty."""
        known = self._jobs.get(job_id)
        if known is None:
            return {}
        found = {cell: part.text for cell, part in known.parts.items() if part.text}
        return {"": known.text, **found} if known.text else found

    # ---- inputs ----

    def show(self, job: Job, now_us: int) -> None:
        """The job may span cells, or has guests."""
        assert job.guests is not None
        known = self._jobs.get(job.job_id)
        if known is None:
            known = self._jobs[job.job_id] = _Spanning(job, now_us + (0 if job.guests.is_wide else FIRST_US))
        before, guests = known.job.guests, job.guests
        self._note_end(known, job)
        known.job, known.wished = job, ()
        if guests.serial != known.serial:
            known.serial = guests.serial
            # A leader before this one may have asked for the guests that it finds.
            known.is_fresh = before is not None and before.stage is GuestStage.NONE
            known.parts = {guest.cell: _Part(guest.job_id, guest.node_list) for guest in guests.guests}
            known.idle_since_us, known.slowest_us = None, 0
        for part in known.parts.values():
            if not part.misses:
                # What it is to be told may have changed.
                part.call_at_us = 0
        is_resting = guests.stage is GuestStage.NONE
        self._agenda.put(job.job_id, max(now_us, known.rest_until_us) if is_resting else now_us)

    def _note_end(self, known: _Spanning, job: Job) -> None:
        """A job whose nodes did not come, or that runs, is to rest before its next gathering."""
        before, after = known.job.guests, job.guests
        if before is not None and after is not None and before.stage is GuestStage.ASKED:
            self.counts["held"] += after.stage is GuestStage.HELD
        if job.attempt is not None:
            known.rests = known.own_max = 0
        if before is None or after is None or after.stage is not GuestStage.LEAVING:
            return
        if before.stage is not GuestStage.LEAVING:
            self.counts["given up"] += 1
            known.must_rest = True
            known.rests += 1
        if before.stage is GuestStage.HELD and job.attempts < before.attempt:
            # Its own cell did not start it on so many nodes, a limit perhaps: the other cells are to have more of them.
            known.own_max = max(1, before.own_nodes // 2)

    def drop(self, job_id: int) -> None:
        """The job needs nothing of other cells any more."""
        self._jobs.pop(job_id, None)
        self._agenda.drop(job_id)

    def called(self, action: AskGuest | TellGuest, answer: CellAnswer, now_us: int) -> None:
        """A cell has answered, or did not in useful time."""
        self._calls -= 1
        known = self._jobs.get(action.job_id)
        part = known.parts.get(action.cell) if known is not None else None
        if known is None or part is None or part.call is not action:
            return
        part.call = None
        self._agenda.put(action.job_id, now_us)
        is_asked = isinstance(action, AskGuest)
        # A refusal to tell says nothing of a guest that is there: a leader that has just begun knows no other cell yet.
        if not answer.is_done and not (answer.is_refused and is_asked):
            part.misses += 1
            part.text = _line(answer.text or "it did not answer")
            part.call_at_us = now_us + min(AGAIN_MAX_US, AGAIN_US << min(part.misses - 1, 6))
            return
        part.misses = 0
        part.ending_us = 0
        known.slowest_us = max(known.slowest_us, now_us - part.called_us)
        if answer.is_refused:
            part.is_ended = True
            part.text = _line(answer.text or "refused")
        elif isinstance(action, AskGuest):
            part.job_id, part.text = answer.guest_id, ""
        else:
            self._take_look(part, action, answer, now_us)

    def _take_look(self, part: _Part, action: TellGuest, answer: CellAnswer, now_us: int) -> None:
        part.is_ended, part.is_waiting = answer.is_ended, answer.is_waiting
        part.is_kept = part.is_kept or action.wish == "keep"
        part.text = _line(answer.text)
        if answer.is_held:
            part.node_list, part.text = answer.node_list, ""
        is_waiting = not part.node_list or action.wish == "end"
        part.call_at_us = now_us + (LOOK_US if is_waiting else KEPT_LOOK_US)

    # ---- what next ----

    def tick(self, now_us: int, draw: float) -> list[AskGuest | TellGuest]:
        """The next calls, each once. `draw` is of [0, 1), for rests."""
        self._look(now_us)
        actions: list[AskGuest | TellGuest] = []
        for job_id in self._agenda.take(now_us, STEPS_MAX):
            known = self._jobs.get(job_id)
            if known is None:
                continue
            found = self._step(known, now_us, draw)
            self._calls += len(found)
            actions += found
        return actions

    def due_us(self, now_us: int) -> int | None:
        """The next instant at which `tick` has something to do, as far as it depends on time; None: no such instant."""
        due_us = self._agenda.due_us
        if due_us is not None and any(one.lacks_nodes for one in self._jobs.values()):
            due_us = min(due_us, max(now_us, self._view_at_us))
        return due_us

    # ---- within ----

    def _look(self, now_us: int) -> None:
        """Wake jobs that lack nodes when a cell has become freer."""
        lacking = [job_id for job_id, one in self._jobs.items() if one.lacks_nodes]
        if not lacking or now_us < self._view_at_us:
            return
        self._view_at_us = now_us + VIEW_US
        free = {cell.name: cell.nodes_free for cell in self._observe(now_us).cells}
        is_freer = any(nodes > self._free_nodes.get(name, 0) for name, nodes in free.items())
        self._free_nodes = free
        for job_id in lacking[:WAKE_MAX] if is_freer else ():
            self._agenda.put(job_id, now_us)

    def _step(self, known: _Spanning, now_us: int, draw: float) -> list[AskGuest | TellGuest]:
        job, guests = known.job, known.job.guests
        assert guests is not None
        known.lacks_nodes = False
        if job.frees_guests:
            return self._free(known, guests, now_us)
        if job.state in FINAL:
            return []
        if guests.stage is GuestStage.NONE:
            self._begin(known, now_us, draw)
            return []
        if guests.stage is GuestStage.ASKED:
            return self._ask(known, guests, now_us)
        if job.attempt is None:
            if job.attempts >= guests.attempt:
                # The guests of an attempt that lost them all.
                self._wish(job, GiveUpGuests(job.job_id, guests.serial, "it starts again"), now_us)
            elif self._is_idle_for(known, OWN_US, now_us):
                known.text = "its own part of the nodes is not free"
                self._wish(job, GiveUpGuests(job.job_id, guests.serial, known.text), now_us)
            return []
        return self._keep(known, guests, now_us)

    def _begin(self, known: _Spanning, now_us: int, draw: float) -> None:
        """Ask the log for a gathering, if the nodes seem to be there."""
        job = known.job
        if job.state is not JobState.PENDING or job.attempt is not None or not self._may_gather(job):
            # A change of the record brings it back.
            return
        if known.must_rest:
            known.must_rest = False
            # Half of it is drawn: two cells whose jobs want each other's nodes do not meet again and again.
            rest_us = min(REST_MAX_US, REST_MIN_US << min(known.rests, 6))
            self._rest(known, now_us, int(rest_us * (0.5 + draw / 2)))
            return
        wait_us = self._wait_us(job.job_id)
        if wait_us is not None and wait_us <= SOON_US:
            self._rest(known, now_us, SOON_US)
            return
        gathering = [one for one in self._jobs.values() if _gathers(one)]
        known.avoid = {cell: until_us for cell, until_us in known.avoid.items() if until_us > now_us}
        view = self._observe(now_us)
        found = split(job.spec, view, _taken(gathering), known.avoid, known.own_max)
        if not found.guests and known.own_max:
            # The others do not have so many.
            known.own_max = 0
            found = split(job.spec, view, _taken(gathering), known.avoid)
        known.text = found.text
        if len(gathering) >= GATHERINGS_MAX or not found.guests:
            known.lacks_nodes = not found.guests
            self._rest(known, now_us, REST_MIN_US)
            return
        self.counts["asked"] += 1
        known.wished = found.guests
        self._wish(job, AskGuests(job.job_id, found.own_nodes, found.guests), now_us)

    def _rest(self, known: _Spanning, now_us: int, rest_us: int) -> None:
        known.rest_until_us = now_us + rest_us
        self._agenda.put(known.job.job_id, known.rest_until_us)

    def _ask(self, known: _Spanning, guests: Guests, now_us: int) -> list[AskGuest | TellGuest]:
        """Bring the guests into their cells and wait for their nodes; the first one that cannot come ends it for all."""
        job = known.job
        ended = next((cell for cell, part in known.parts.items() if part.is_ended), None)
        if ended is not None:
            text = f"cell {ended}: {known.parts[ended].text or 'its guest has ended'}"
            known.avoid[ended], known.text = now_us + AVOID_US, text
            self._wish(job, GiveUpGuests(job.job_id, guests.serial, _line(text)), now_us)
            return []
        lacking = [cell for cell, part in known.parts.items() if part.is_waiting and not part.node_list]
        if not lacking or not any(part.node_list for part in known.parts.values()):
            known.idle_since_us = None
        elif self._is_idle_for(known, LACK_US, now_us):
            known.avoid |= dict.fromkeys(lacking, now_us + BUSY_US)
            known.text = f"cell {lacking[0]}: {known.parts[lacking[0]].text}"
            self._wish(job, GiveUpGuests(job.job_id, guests.serial, _line(known.text)), now_us)
            return []
        if all(part.node_list for part in known.parts.values()):
            known.idle_since_us = None
            held = tuple(
                [
                    Guest(one.cell, one.nodes, known.parts[one.cell].job_id, known.parts[one.cell].node_list)
                    for one in guests.guests
                ]
            )
            self._wish(job, HoldGuests(job.job_id, guests.serial, held), now_us)
            return []
        actions: list[AskGuest | TellGuest] = []
        for guest in guests.guests:
            part = known.parts[guest.cell]
            if part.node_list or not self._may_call(known, part, now_us):
                continue
            if part.job_id:
                part.call = TellGuest(job.job_id, guest.cell, guests.serial, part.job_id, "look")
            else:
                # A leader before this one may have asked.
                is_repeated = part.calls > 0 or not known.is_fresh
                part.call = AskGuest(job.job_id, guest.cell, guests.serial, guest.nodes, is_repeated)
            part.calls += 1
            actions.append(part.call)
        return actions

    def _is_idle_for(self, known: _Spanning, limit_us: int, now_us: int) -> bool:
        """Check whether nodes have been held without use for so long; if not, the job is looked at again then."""
        if known.idle_since_us is None:
            known.idle_since_us = now_us
        if known.rests < YIELDS_MAX and self._has_elder(known.job):
            limit_us = YIELD_US
        limit_us = max(limit_us, min(OWN_US, SLOW_TIMES * known.slowest_us))
        due_us = known.idle_since_us + limit_us
        if due_us > now_us:
            # An older job may come meanwhile.
            self._agenda.put_by(known.job.job_id, min(due_us, now_us + YIELD_US))
        return due_us <= now_us

    def _keep(self, known: _Spanning, guests: Guests, now_us: int) -> list[AskGuest | TellGuest]:
        """Keep the guests of a job that runs, and look whether they are there."""
        job = known.job
        actions: list[AskGuest | TellGuest] = []
        for guest in guests.guests:
            part = known.parts[guest.cell]
            if part.is_ended:
                text = part.text or "its guest has ended"
                self._wish(job, LoseGuest(job.job_id, guests.serial, guest.cell, text), now_us)
            elif self._may_call(known, part, now_us):
                wish = "look" if part.is_kept else "keep"
                part.call = TellGuest(job.job_id, guest.cell, guests.serial, guest.job_id, wish)
                actions.append(part.call)
        return actions

    def _free(self, known: _Spanning, guests: Guests, now_us: int) -> list[AskGuest | TellGuest]:
        """End the guests, and note each that has ended. One that never got an id ends by itself, for its cell never hears
        that it is kept."""
        job = known.job
        actions: list[AskGuest | TellGuest] = []
        is_noted = False
        for guest in guests.guests:
            part = known.parts[guest.cell]
            part.ending_us = part.ending_us or now_us
            number = guest.job_id or part.job_id
            is_forsaken = part.misses > 0 and now_us >= part.ending_us + FORSAKE_US
            if part.call is None and (part.is_ended or not number or is_forsaken):
                if not is_noted:
                    self._wish(job, NoteGuestGone(job.job_id, guests.serial, guest.cell), now_us)
                is_noted = True
            elif self._may_call(known, part, now_us):
                part.call = TellGuest(job.job_id, guest.cell, guests.serial, number, "end")
                actions.append(part.call)
        return actions

    def _may_call(self, known: _Spanning, part: _Part, now_us: int) -> bool:
        """Check whether a call is made now; if it is too early, the job is looked at again."""
        if part.call is not None:
            return False
        at_us = part.call_at_us if self._calls < CALLS_MAX else now_us + LOOK_US
        if at_us <= now_us:
            part.called_us = now_us
            return True
        self._agenda.put_by(known.job.job_id, at_us)
        return False

    def _wish(
        self,
        job: Job,
        message: AskGuests | HoldGuests | GiveUpGuests | LoseGuest | NoteGuestGone,
        now_us: int,
    ) -> None:
        self._agenda.put_by(job.job_id, self._commits.wish(job.job_id, message, now_us))


def _gathers(one: _Spanning) -> bool:
    """Check whether nodes of other cells are about to come for the job."""
    job, guests = one.job, one.job.guests
    if one.wished:
        return True
    is_asked = guests is not None and guests.stage in (GuestStage.ASKED, GuestStage.HELD)
    return is_asked and job.attempt is None and not job.frees_guests


def _taken(gathering: list[_Spanning]) -> dict[str, int]:
    """Nodes of each cell that these jobs are about to get, and do not hold yet."""
    taken: Counter[str] = Counter()
    for one in gathering:
        assert one.job.guests is not None
        for guest in one.wished:
            taken[guest.cell] += guest.nodes
        for guest in one.job.guests.guests if not one.wished else ():
            if not one.parts[guest.cell].node_list:
                taken[guest.cell] += guest.nodes
    return taken


def _line(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:TEXT_MAX])
