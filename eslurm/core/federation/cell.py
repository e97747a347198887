"""All machines of one cell together: what a driver feeds and asks.

A driver calls `tick` after each input and at `due_us`, makes each action a call of the store, and passes the answer back
with its action. A `List` or `Watch` of a mirror takes the place of that mirror's call before it, which is to be ended.
"""

from __future__ import annotations

from collections.abc import Callable

from eslurm.core.federation.actions import (
    Action,
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
from eslurm.core.federation.membership import Identity, Membership
from eslurm.core.federation.mirror import Mirror
from eslurm.core.federation.summaries import Summaries
from eslurm.core.federation.values import Keys
from eslurm.core.federation.view import FederationView, Observer
from eslurm.core.model.federation import FederationConfig


class FederatedCell:
    """The mirrors, the membership and the summaries of one cell. Times are monotonic, draws are of [0, 1)."""

    def __init__(
        self, config: FederationConfig, identity: Identity, is_own_ring: Callable[[bytes], bool]
    ) -> None:
        keys = Keys(config.name)
        self.mirrors = {prefix: Mirror(prefix) for prefix in (keys.cells, keys.alive, keys.summary)}
        cells, alive, summary = self.mirrors.values()
        self.membership = Membership(config, identity, cells, alive, is_own_ring)
        self.summaries = Summaries(config, self.membership, summary)
        self._observer = Observer(config.name, self.membership, cells, alive, summary)

    def tick(self, now_us: int, draw: float) -> tuple[Action, ...]:
        """What to ask of the store next, each once."""
        actions: list[Action] = [
            action for mirror in self.mirrors.values() if (action := mirror.tick(now_us, draw)) is not None
        ]
        actions += self.membership.tick(now_us, draw)
        if swap := self.summaries.tick(now_us, draw):
            actions.append(swap)
        return tuple(actions)

    def due_us(self, now_us: int) -> int | None:
        """When `tick` has something next, as far as that is a matter of time."""
        times = [mirror.due_us for mirror in self.mirrors.values()]
        times += [self.membership.due_us(now_us), self.summaries.due_us(now_us)]
        return min((at for at in times if at is not None), default=None)

    def view(self, now_us: int) -> FederationView:
        """What is known of all cells."""
        return self._observer.view(now_us)

    # ---- answers ----

    def listed(self, action: List, page: StoredPage, now_us: int) -> None:
        """See `Mirror.listed`."""
        self.mirrors[action.prefix].listed(action, page, now_us)

    def changed(self, action: Watch, changes: StoredChanges, now_us: int) -> None:
        """See `Mirror.changed`."""
        self.mirrors[action.prefix].changed(action, changes, now_us)

    def swapped(self, action: SwapKeys, answer: SwapAnswer) -> None:
        """The machine that asked takes the answer."""
        self.membership.swapped(action, answer)
        self.summaries.swapped(action, answer)

    def granted(self, action: GrantLease, lease: GrantedLease, now_us: int) -> None:
        """See `Membership.granted`."""
        self.membership.granted(action, lease, now_us)

    def kept(self, action: KeepLease, ttl_s: float, now_us: int) -> None:
        """See `Membership.kept`."""
        self.membership.kept(action, ttl_s, now_us)

    def revoked(self, action: RevokeLease) -> None:
        """See `Membership.revoked`."""
        self.membership.revoked(action)

    def failed(self, action: Action, failure: Failure, now_us: int) -> None:
        """A call failed, or a watch has ended."""
        if isinstance(action, List | Watch):
            self.mirrors[action.prefix].failed(action, failure, now_us)
            return
        self.membership.failed(action, failure, now_us)
        if isinstance(action, SwapKeys):
            self.summaries.failed(action, failure)
