"""The endpoint of a command's calls: sockets of this host (`escli.door`), or controllers of another (`escli.remote`)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from eslurm.api.client import DoorClient


class Way:
    """Where the doors are, and how they are called: `Sockets`, or `escli.remote.Remote`."""

    is_remote = False
    advice = ""
    """What else may be done when no door answers."""

    @property
    def first(self) -> str:
        """The door to be tried first."""
        raise NotImplementedError

    def client(self, patience_s: float, on_refused: Callable[[str], None]) -> DoorClient:
        """A new client of the doors. Raises CommandFailed."""
        raise NotImplementedError

    def user(self) -> str:
        """The name that the cluster knows the caller by."""
        raise NotImplementedError

    def about_caller(self) -> str:
        """Said behind the cluster's words when it does not take the caller for anybody."""
        return ""

    def has_changed(self) -> bool:
        """Check whether the caller can show something else by now."""
        return False
