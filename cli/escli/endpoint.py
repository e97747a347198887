"""The endpoint of a command's calls: sockets of this host (`escli.api`), or controllers of another (`escli.remote`)."""

from __future__ import annotations

from abc import ABC, abstractmethod

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from eslurm.api.client import ApiClient


class Endpoint(ABC):
    """The API endpoints and the way to call them: `Sockets`, or `escli.remote.Remote`."""

    is_remote = False
    advice = ""
    """The hint when no endpoint answers."""

    @property
    @abstractmethod
    def first(self) -> str:
        """The first endpoint to try."""

    @abstractmethod
    def client(self, patience_s: float, on_refused: Callable[[str], None]) -> ApiClient:
        """A new client of the endpoints. Raises CommandFailed."""

    @abstractmethod
    def user(self) -> str:
        """The caller's user name in the cluster."""

    def about_caller(self) -> str:
        """An addition to the cluster's words when it does not authenticate the caller."""
        return ""

    def has_changed(self) -> bool:
        """Check whether the caller's credentials have changed since."""
        return False
