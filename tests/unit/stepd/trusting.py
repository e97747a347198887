"""A supervisor that takes specs as they are: for tests of what becomes of a step once it is allowed.

What may be asked of a real one is tried in `test_credential`, `test_gate` and `tests/security`.
"""

from __future__ import annotations

import sys

import msgspec

from eslurm.ports.step_runner import StepKey, StepOrder, StepSpec
from esnoded.stepd import wire
from esnoded.stepd.__main__ import main
from esnoded.stepd.credential import NotAllowed
from esnoded.stepd.gate import Admitted, Gate
from esnoded.stepd.journal import Journal
from esnoded.stepd.place import Place


class TrustingGate(Gate):
    """Finds the spec in the place of the credential."""

    def __init__(self, place: Place, _journal: Journal) -> None:
        self._place = place
        self._options = place.read_options()

    def admit(self, order: StepOrder) -> Admitted:
        try:
            return Admitted(msgspec.msgpack.decode(order.credential, type=StepSpec), 0)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise NotAllowed(f"no spec: {error}") from None

    def on_taken(self, admitted: Admitted) -> None:
        pass

    def on_ended(self, key: StepKey) -> None:
        pass

    def check_limit(self, request: wire.SetLimit, present_us: int) -> None:
        pass

    def refresh(self) -> None:
        pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], TrustingGate))
