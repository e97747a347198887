"""A cell's whole part in its federation as one machine: copies of the store's keys, membership, summaries, job ids, view,
transfers of jobs.

A driver carries its actions to the store, one call each, and brings each answer back together with its action; the
controller's and the simulator's do nothing else. Invariant: an action that has an answer is over, except a `Watch`, which is
answered until it fails or another action takes the place of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from eslurm.core.federation.actions import (
    Action,
    CellAnswer,
    CellCall,
    Failure,
    GrantedLease,
    GrantLease,
    KeepLease,
    List,
    RevokeLease,
    StoredChanges,
    StoredPage,
    SwapAnswer,
    SwapKeys,
    Watch,
)
from eslurm.core.federation.blocks import BLOCKS_MAX, IdBlocks, IdsWish, OwnIds
from eslurm.core.federation.membership import Identity, Lead, Membership, Standing
from eslurm.core.federation.mirror import Mirror
from eslurm.core.federation.own_word import OldWord
from eslurm.core.federation.summaries import HORIZON_US, Horizon, NodeClasses, Summaries
from eslurm.core.federation.transfers.transfers import Transfers
from eslurm.core.federation.usage import SharedUsage, UsageReading
from eslurm.core.federation.usage_sheet import read_usage
from eslurm.core.federation.values import Keys
from eslurm.core.federation.view import FederationView, Observer
from eslurm.core.model.federation import FederationConfig, Summary
from eslurm.core.model.messages import TransferMessage
from eslurm.core.plan.profile.profile import ResourceProfile
from eslurm.core.state.view import View

COMMIT_LOOK_US: Final = 20_000
"""Interval of looks whether a wish has been committed."""
COMMIT_AGAIN_US: Final = 2_000_000


class Inputs(msgspec.Struct, frozen=True):
    """The state that the cell shows: its last committed view, its plan (None: none yet), the time of day.

    `commit` passes a message to the cell's core; whether it came about shows in the view. `start_us` is the planned start of
    a waiting job by the clock of `wall_us`; None: the plan does not say.
    """

    view: Callable[[], View]
    profile: Callable[[], ResourceProfile | None]
    wall_us: Callable[[], int]
    commit: Callable[[IdsWish | TransferMessage], None]
    start_us: Callable[[int], int | None] = lambda _job_id: None


class Participant:
    """One cell in its federation while one controller leads it. Times are monotonic but for `Inputs.wall_us`."""

    def __init__(
        self,
        config: FederationConfig,
        identity: Identity,
        is_own_ring: Callable[[bytes], bool],
        inputs: Inputs,
    ) -> None:
        keys = Keys(config.name)
        self.cells, self.alive, self.shown = Mirror(keys.cells), Mirror(keys.alive), Mirror(keys.summary)
        self.leases = Mirror(keys.ids, BLOCKS_MAX)
        self.membership = Membership(config, identity, self.cells, self.alive, is_own_ring)
        self.summaries = Summaries(config, self.membership, self.shown)
        self.ids = IdBlocks(config, self.membership, self.leases)
        self._inputs = inputs
        self._federation = config.name
        mirrors = self.cells, self.alive, self.shown, self.leases
        self._mirrors = {mirror.prefix: mirror for mirror in mirrors}
        self.usage: SharedUsage | None = None
        """None: the cell neither publishes its usage nor counts that of others."""
        if config.fair_share == "sum":
            used = self._mirrors[keys.usage] = Mirror(keys.usage)
            self.usage = SharedUsage(self.membership, self.cells, used, self._read_usage)
        self._old_usage = OldWord(self.membership, self.alive, self.membership.own.usage_key)
        self._observer = Observer(config.name, self.membership, self.cells, self.alive, self.shown)
        self.transfers = Transfers(
            keys, self.membership, inputs.view, self._wait_us, self._observer.view, inputs.commit
        )
        self._classes: NodeClasses | None = None
        self._horizon: Horizon = ()
        self._horizon_at_us = 0
        self._wished: tuple[IdsWish, int] | None = None

    def leads(self, lead: Lead) -> None:
        """See `Membership.leads`: nothing is asked of the store before."""
        self.membership.leads(lead)

    def identify(self, identity: Identity) -> None:
        """See `Membership.identify`."""
        self.membership.identify(identity)

    def stop(self) -> None:
        """End in good order: `tick` on until `is_stopped`."""
        self.membership.stop()

    def rejoin(self, now_us: int) -> None:
        """An administrator has seen that the store is another one, or an older copy: what it lacks is written again."""
        self.ids.rejoins = True
        self.transfers.follows_new_store(now_us)

    @property
    def is_stopped(self) -> bool:
        """True when nothing is left to end."""
        return self.membership.is_stopped

    @property
    def is_ordered(self) -> bool:
        """True when the store has what an administrator has ordered, and the cell stands there accordingly."""
        self._follow_orders()
        membership = self.membership
        wanted = Standing.LEFT if membership.must_leave else Standing.MEMBER
        return membership.is_changed and membership.standing is wanted

    def view(self, now_us: int) -> FederationView:
        """All cells, as they are known now."""
        return self._observer.view(now_us)

    # ---- what next ----

    def tick(self, now_us: int, draw: float) -> list[Action]:
        """All that is to be asked of the store now, each once. `draw` is of [0, 1), for pauses.

        A `List` or a `Watch` takes the place of the one of the same prefix before it, which is to be closed.
        """
        self._follow_orders()
        if self.summaries.wants(now_us):
            self.summaries.show(self._read(now_us), now_us)
        self.ids.show(self._own_ids(), now_us)
        actions: list[Action] = [
            asked for mirror in self._mirrors.values() if (asked := mirror.tick(now_us, draw)) is not None
        ]
        actions += self.membership.tick(now_us, draw)
        if (swap := self.summaries.tick(now_us, draw)) is not None:
            actions.append(swap)
        if (lease := self.ids.tick(now_us, draw)) is not None:
            actions.append(lease)
        actions += self.transfers.tick(now_us, draw)
        if self.usage is not None:
            told = self.usage.tick(now_us, self._inputs.wall_us(), draw)
        else:
            told = self._old_usage.next(now_us, draw)
        if told is not None:
            actions.append(told)
        self._commit(now_us)
        return actions

    def due_us(self, now_us: int) -> int | None:
        """The next instant at which `tick` has something to do, as far as it depends on time; None: no such instant."""
        times = [mirror.due_us for mirror in self._mirrors.values()]
        times += [
            machine.due_us(now_us) for machine in (self.membership, self.summaries, self.ids, self.transfers)
        ]
        times.append((self.usage or self._old_usage).due_us(now_us))
        if self.ids.wish is not None:
            times.append(now_us + COMMIT_LOOK_US)
        return min((at_us for at_us in times if at_us is not None), default=None)

    # ---- answers ----

    def listed(self, action: List, page: StoredPage, now_us: int) -> None:
        """A page has come."""
        self._mirror_of(action).listed(action, page, now_us)

    def changed(self, action: Watch, changes: StoredChanges, now_us: int) -> None:
        """Changes have come."""
        self._mirror_of(action).changed(action, changes, now_us)

    def swapped(self, action: SwapKeys, answer: SwapAnswer) -> None:
        """The store has answered to a swap; its machine knows it as its own."""
        self.membership.swapped(action, answer)
        self.summaries.swapped(action, answer)
        self.ids.swapped(action, answer)
        self.transfers.swapped(action, answer)
        (self.usage or self._old_usage).swapped(action, answer)

    def called(self, action: CellCall, answer: CellAnswer, now_us: int) -> None:
        """Another cell has answered to a call, or did not in useful time."""
        self.transfers.called(action, answer, now_us)

    def granted(self, action: GrantLease, lease: GrantedLease, now_us: int) -> None:
        """There is a lease."""
        self.membership.granted(action, lease, now_us)

    def kept(self, action: KeepLease, ttl_s: float, now_us: int) -> None:
        """The lease has its full life again."""
        self.membership.kept(action, ttl_s, now_us)

    def revoked(self, action: RevokeLease) -> None:
        """The lease has ended."""
        self.membership.revoked(action)

    def failed(self, action: Action, failure: Failure, now_us: int) -> None:
        """The call failed, or the watch has ended."""
        if isinstance(action, List | Watch):
            self._mirror_of(action).failed(action, failure, now_us)
            return
        if isinstance(action, CellCall):
            self.transfers.called(action, CellAnswer(is_done=False, text=failure.text), now_us)
            return
        self.membership.failed(action, failure, now_us)
        if isinstance(action, SwapKeys):
            self.summaries.failed(action, failure)
            self.ids.failed(action, failure)
            self.transfers.failed(action, failure)
            (self.usage or self._old_usage).failed(action, failure)

    # ---- within ----

    def _mirror_of(self, action: List | Watch) -> Mirror:
        return self._mirrors.get(action.prefix, self.transfers.mirror)

    def _wait_us(self, job_id: int) -> int | None:
        start_us = self._inputs.start_us(job_id)
        return None if start_us is None else max(0, start_us - self._inputs.wall_us())

    def _follow_orders(self) -> None:
        """Those of another federation do not count."""
        wish = self._inputs.view().federation
        if wish is not None and wish.federation == self._federation:
            self.membership.change(draining=wish.draining, left=wish.left)

    def _commit(self, now_us: int) -> None:
        wish = self.ids.wish
        if wish is not None and (
            self._wished is None or self._wished[0] != wish or now_us >= self._wished[1] + COMMIT_AGAIN_US
        ):
            self._inputs.commit(wish)
            self._wished = wish, now_us

    def _read(self, now_us: int) -> Summary:
        view = self._inputs.view()
        if self._classes is None or not self._classes.is_of(view):
            self._classes = NodeClasses(view)
            self._horizon, self._horizon_at_us = (), 0
        profile = self._inputs.profile()
        if profile is not None and profile.topology is view.topology and now_us >= self._horizon_at_us:
            self._horizon = self._classes.horizon(profile)
            self._horizon_at_us = now_us + HORIZON_US
        return self._classes.read(view, self._inputs.wall_us(), self._horizon)

    def _read_usage(self) -> UsageReading:
        return read_usage(self._inputs.view(), self._inputs.wall_us())

    def _own_ids(self) -> OwnIds:
        view = self._inputs.view()
        return OwnIds(view.next_id, view.id_blocks)
