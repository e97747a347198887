"""A supervisor that takes specs as they are: for tests of what becomes of a step once it is allowed.

What may be asked of a real one is tried in `test_credential`, `test_gate` and `tests/security`.
"""

from __future__ import annotations

import sys

import msgspec

from eslurm.core.model.job import Principal
from eslurm.core.model.step_key import StepKey
from eslurm.ports.step_runner import StepOrder, StepSpec
from esnoded.procd.credential import NotAllowed
from esnoded.procd.launches import Launches
from esnoded.procd.options import Options, read_options
from esnoded.procd.request_checks import Allowed, RequestChecks
from esnoded.stepd.__main__ import main
from esnoded.stepd.place import Place
from esnoded.stepd.processes import Processes
from tests.kits.stepd_credentials import SITE


def read_spec(order: StepOrder) -> StepSpec:
    try:
        return msgspec.msgpack.decode(order.credential, type=StepSpec)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotAllowed(f"no spec: {error}") from None


def allow(spec: StepSpec) -> Allowed:
    """Allow just this step, as a credential for it does."""
    user = Principal("", spec.uid, spec.gid, spec.groups)
    warns = spec.warning is not None and bool(spec.warning.script)
    shapes = ("s", "pp", "ppp") if spec.endpoint is not None or spec.key.is_phase else ("",)
    streams = tuple("s" * (spec.mpi == "pmix") + shape + "s" * (spec.mpi == "pmi") for shape in shapes)
    return Allowed(spec.key, user, 0, lambda _local: spec, spec.tasks, streams, warns)


class TrustingChecks(RequestChecks):
    """Finds the spec in the place of the credential."""

    def __init__(self, options: str) -> None:
        self._path = options
        self._options = read_options(options)

    def admit(self, order: StepOrder) -> Allowed:
        return allow(read_spec(order))

    def begin(self, allowed: Allowed) -> None:
        pass

    def release(self, key: StepKey) -> None:
        pass

    def refresh(self) -> tuple[Options, bytes]:
        return self._options, SITE.ring.sealed


def make_checks(place: Place, _launches: Launches) -> RequestChecks:
    return TrustingChecks(place.options)


if __name__ == "__main__":
    # Of what a test sends as the sealed command.
    Processes.limit = lambda _self, _key, credential: (1, msgspec.msgpack.decode(credential, type=int))  # type: ignore[method-assign]
    sys.exit(main(sys.argv[1:], make_checks, read_spec))
