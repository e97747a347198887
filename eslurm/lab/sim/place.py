"""A controller's place as the process sees it that sits there (`controller_host.Seat`)."""

from __future__ import annotations

from typing import Protocol

from eslurm.core.state.cluster import State


class Place(Protocol):
    """Its name, its host's wall clock, its way to the store, and the roles that the process goes on in."""

    name: str
    address: str
    is_cut_off: bool
    has_begun: bool

    @property
    def wall_us(self) -> int: ...

    @property
    def reaches_store(self) -> bool: ...

    def stand_by(self) -> None: ...

    def lead(self, state: State, epoch: int) -> None: ...

    def crash(self, when: str) -> None: ...

    def end(self) -> None: ...

    def pause(self, when: str) -> None: ...
