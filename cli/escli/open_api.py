"""The API that a command's options name: of this cluster, or of another cell of its federation."""

from __future__ import annotations

import os

from escli.api import Api, find_endpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from escli.options import Words


def open_api(given: Words, command: str) -> Api:
    """The API endpoint from a command's options and its environment."""
    endpoint = find_endpoint(given, os.environ)
    if given.has("cell") or given.has("clusters"):
        from escli.cells import cell_api

        return cell_api(given, endpoint, command)
    return Api(endpoint, command)
