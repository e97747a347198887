"""The endpoint of a command's calls: sockets of this host (`escli.door`), or controllers of another (`escli.remote`)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from eslurm.api.client import DoorClient


class Endpoint:
    """The API endpoints and the way to call them: `Sockets`, or `escli.remote.Remote`."""

    is_remote = False
    advice = ""
    """The hint when no endpoint answers."""

    @property
    def first(self) -> str:
        """The first endpoint to try."""
        raise NotImplementedError

    def client(self, patience_s: float, on_refused: Callable[[str], None]) -> DoorClient:
        """A new client of the endpoints. Raises CommandFailed."""
        raise NotImplementedError

    def user(self) -> str:
        """The caller's user name in the cluster."""
        raise NotImplementedError

    def about_caller(self) -> str:
        """An addition to the cluster's words when it does not authenticate the caller."""
        return ""

    def has_changed(self) -> bool:
        """Check whether the caller's credentials have changed since."""
        return False
