"""Rare paths of a federation that a run has taken, counted from outside.

Invariant: counting changes nothing, so a run is the same whatever is counted.
"""

from __future__ import annotations

from typing import Final

from eslurm.core.federation.actions import Action, KeepLease, List, SwapKeys, Watch
from eslurm.core.federation.membership import Standing
from eslurm.lab.kv.image import KvImage
from eslurm.lab.sim.federation.part import Part
from eslurm.ports.kv import KvAmbiguous, KvError, KvFull, LeaseLost, WatchBroken

OFFERED: Final = "waiting job offered to another cell"
TAKEN: Final = "offered job taken"
WITHDRAWN: Final = "offer withdrawn"
DELIVERY_REFUSED: Final = "delivery of an offered job refused"
ARRIVAL_DROPPED: Final = "job that had arrived dropped"
CANCELLED_BETWEEN: Final = "job cancelled while another cell might own it"
TAKER_DIED: Final = "leader ended while its cell owned another's job"
HOME_CHANGED: Final = "leader ended while a job was offered"
TOLD_LATER: Final = "outcome told by a later leader"
GATHERED: Final = "nodes of other cells gathered"
GIVEN_UP: Final = "gathering given up"
GUEST_LOST: Final = "running job lost a guest"
GUEST_KEPT: Final = "guest kept"
GUEST_UNKEPT: Final = "guest ended because it was not kept"
MET: Final = "nodes given back because jobs met"
SPAN_MOVED: Final = "leader ended while a job had guests"

PATHS: Final = (
    "cell listed anew after a compaction",
    "lease of a cell lost and granted anew",
    "word that a cell is alive taken over by a standby",
    "swap without an answer was done",
    "swap without an answer was not done, or not yet",
    "swap refused for want of room",
    "cell without an answer went to another server",
    "former leader superseded",
    "cell refused: its name is another's",
    "store elected another leader",
    "cell shown silent",
    "silent cell came back",
    OFFERED,
    TAKEN,
    WITHDRAWN,
    DELIVERY_REFUSED,
    ARRIVAL_DROPPED,
    CANCELLED_BETWEEN,
    TAKER_DIED,
    HOME_CHANGED,
    TOLD_LATER,
    GATHERED,
    GIVEN_UP,
    GUEST_LOST,
    GUEST_KEPT,
    GUEST_UNKEPT,
    MET,
    SPAN_MOVED,
)
"""Every path that is counted."""


class FederationCoverage:
    """Counts of one run, by path."""

    def __init__(self, image: KvImage) -> None:
        self.counts: dict[str, int] = dict.fromkeys(PATHS, 0)
        self._image = image
        self._members: dict[str, int] = {}
        self._silent: set[tuple[str, str]] = set()

    def count(self, path: str) -> None:
        """It was taken once more."""
        self.counts[path] += 1

    def on_failed(self, part: Part, action: Action, error: KvError) -> None:
        """A call of a part failed."""
        if isinstance(error, WatchBroken) and isinstance(action, List | Watch):
            self.count("cell listed anew after a compaction")
        elif isinstance(error, LeaseLost) and isinstance(action, KeepLease):
            self.count("lease of a cell lost and granted anew")
        elif isinstance(error, KvFull):
            self.count("swap refused for want of room")
        elif isinstance(error, KvAmbiguous) and isinstance(action, SwapKeys) and action.then:
            write = action.then[0]
            entry = self._image.get(write.key).entry
            is_done = (entry.value if entry is not None else None) == write.value
            self.count(f"swap without an answer was {'done' if is_done else 'not done, or not yet'}")

    def on_standing(self, cell: str, part: Part, standing: Standing) -> None:
        """A part stands elsewhere than before."""
        if standing is Standing.MEMBER:
            before = self._members.get(cell, part.epoch)
            self._members[cell] = max(before, part.epoch)
            if before < part.epoch:
                self.count("word that a cell is alive taken over by a standby")
        elif standing is Standing.SUPERSEDED:
            self.count("former leader superseded")
        elif standing is Standing.REFUSED:
            self.count("cell refused: its name is another's")

    def on_end(self, part: Part) -> None:
        """A part has ended."""
        if part.client is not None:
            self.counts["cell without an answer went to another server"] += part.client.moves

    def on_shown(self, observer: str, cell: str, *, is_silent: bool) -> None:
        """One cell shows another."""
        pair = observer, cell
        if is_silent and pair not in self._silent:
            self._silent.add(pair)
            self.count("cell shown silent")
        elif not is_silent and pair in self._silent:
            self._silent.discard(pair)
            self.count("silent cell came back")
