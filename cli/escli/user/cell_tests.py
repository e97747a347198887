"""`essubmit --test-only --cell any`: when each cell of the federation would start the job."""

from __future__ import annotations

import json
import os

from escli import exits, program
from escli.api import SUBMIT
from escli.cells import ANY_CELL
from escli.user.cells import ALL, CELLS_S, ask_cells
from escli.user.submission_tests import tell_one_test, test_fields, tests_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from escli.api import Api
    from escli.options import Words


def tell_cells(request: bytes, cells: Sequence[str], options: Words, command: str) -> int:
    """Print the answer of each cell that may run the job, the cluster's own among them; a silent one is a warning."""
    from eslurm.v1 import controller_pb2 as pb

    def ask(api: Api) -> Any:
        return tests_of(pb.SubmitReply.FromString(api.send(SUBMIT, request, CELLS_S, os.urandom(16))))

    text = ALL if ANY_CELL in cells else ",".join(cells)
    found = ask_cells(options, command, ask, text)
    tests = [(cell.name, one) for cell in found for one in cell.answer or ()]
    if options.has("json"):
        answers = [{"cell": name, **test_fields(one)} for name, one in tests]
        errors = [{"cell": cell.name, "error": cell.error} for cell in found if cell.error]
        program.say(json.dumps({"cells": answers + errors}))
    else:
        for name, one in tests:
            tell_one_test(one, f"cell {name}: ")
    return exits.OK if any(not one.refused for _, one in tests) else exits.FAILED
