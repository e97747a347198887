"""Arbitrary orders to a real supervisor, past the agent's own checks: it survives, and every launch is answered."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eslurm.core.model.step_key import StepKey
from eslurm.ports.step_runner import (
    OutputEndpoint,
    StepEndCause,
    StepSpec,
    StepWarning,
)
from esnoded.stepd import wire
from esnoded.stepd.place import Place
from tests.kits.stepd import PATIENCE_S, Site, order_of, supervised

_answers = msgspec.msgpack.Decoder(wire.Answer)
_encode = msgspec.msgpack.Encoder().encode

EDGES = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 63, 64, 65, 999, 4_096, 4_097, 65_535, 99_999)
WIDE = (2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
numbers = st.sampled_from(EDGES + WIDE) | st.integers(-(2**63), 2**64 - 1)
texts = st.sampled_from(("", "a", "/", "/tmp", "a\0b", "\0", "ü", "=", "x" * 5_000)) | st.text(max_size=8)
hosts = st.sampled_from(
    ("127.0.0.1", "::1", "/run/s", "127.0.0.1\0", "name", "0.0.0.0", "fe80::1%lo", "256.1.1.1")
)
endpoints = st.builds(
    OutputEndpoint, hosts | texts, numbers, st.sampled_from((b"", b"c", bytes(32), bytes(33)))
)
warnings = st.builds(StepWarning, numbers, numbers, st.booleans(), texts)
keys = st.builds(StepKey, numbers, numbers, numbers, numbers)
programs = st.sampled_from(("true", "false", "no-such-program", "/", "", "/tmp", "a\0b"))


@st.composite
def changes(draw: st.DrawFn) -> dict[str, Any]:
    """Some fields of a good step with drawn values; output goes to few places."""
    places = st.sampled_from(("/dev/null", "out", "", "/", "no/such/dir/x", "a\0b"))
    return draw(
        st.fixed_dictionaries(
            {},
            optional={
                "argv": st.tuples(programs, texts) | st.just(()),
                "env": st.dictionaries(texts, texts, max_size=3),
                "cwd": texts,
                "uid": numbers,
                "gid": numbers,
                "groups": st.lists(numbers, max_size=3).map(tuple),
                "stdin": places,
                "stdout": places,
                "stderr": places,
                "endpoint": st.none() | endpoints,
                "umask": numbers,
                "time_limit_us": numbers,
                "kill_grace_us": numbers,
                "orphan_timeout_us": numbers,
                "tasks": st.sampled_from((-1, 0, 1, 2, 4_097, 2**63)),
                "first_task": numbers,
                "warning": st.none() | warnings,
                "node_name": texts,
            },
        )
    )


class RawAgent:
    """Frames to and from a supervisor, with nothing checked on the way."""

    def __init__(self, site: Site) -> None:
        self._socket = Place(site.state).connect()
        self._socket.settimeout(PATIENCE_S)
        self._frames = wire.FrameBuffer()
        self._bodies: list[bytes] = []
        self.ended: set[StepKey] = set()
        self._number = 0
        self.send(wire.Hello(wire.PROTOCOL_VERSION))

    def send(self, message: msgspec.Struct) -> None:
        self.send_body(_encode(message))

    def send_body(self, body: bytes) -> None:
        self._socket.sendall(struct.pack(">I", len(body)) + body)

    def ask(self, make: Any) -> wire.Answer:
        """The answer to one request."""
        self._number += 1
        self.send(make(self._number))
        return self.answer_to(self._number)

    def answer_to(self, number: int) -> wire.Answer:
        while True:
            answer = self._next()
            if getattr(answer, "request", None) == number:
                return answer

    def end(self, key: StepKey) -> None:
        """Kill a step and wait for its outcome, then forget it."""
        self.ask(lambda number: wire.Terminate(number, key, StepEndCause.SIGNALLED, 0))
        self.wait_ended(key)
        self.ended.discard(key)
        self.ask(lambda number: wire.Acknowledge(number, (key,)))

    def wait_ended(self, key: StepKey) -> None:
        while key not in self.ended:
            self._next()

    def close(self) -> None:
        self._socket.close()

    def _next(self) -> wire.Answer:
        while not self._bodies:
            data = self._socket.recv(65_536)
            assert data, "the supervisor has hung up"
            self._bodies = self._frames.feed(data)
        answer: wire.Answer = _answers.decode(self._bodies.pop(0))
        if isinstance(answer, wire.Ended):
            self.ended.update(outcome.key for outcome in answer.outcomes)
        return answer


@pytest.mark.timeout(240)
def test_a_supervisor_survives_whatever_it_is_asked(state_dir: Path) -> None:
    with supervised(state_dir) as site:
        pid = site.start()
        agent = RawAgent(site)
        count = 0

        @settings(suppress_health_check=list(HealthCheck), deadline=None)
        @given(changes(), st.none() | keys)
        def launch(fields: dict[str, Any], odd: StepKey | None) -> None:
            nonlocal count
            count += 1
            key = odd if odd is not None else StepKey(count, 1, -1, 0)
            good = site.spec(key, "true")
            spec: StepSpec = msgspec.structs.replace(good, **fields)
            answer = agent.ask(lambda number: wire.Launch(number, order_of(spec)))
            assert isinstance(answer, wire.Launched | wire.Refused), answer
            if isinstance(answer, wire.Refused):
                assert answer.text and "internal error" not in answer.text
            else:
                agent.end(key)

        @settings(suppress_health_check=list(HealthCheck), deadline=None)
        @given(keys, numbers)
        def other(key: StepKey, number: int) -> None:
            live = StepKey(1, 2, 3, 4)
            assert isinstance(
                agent.ask(lambda one: wire.Launch(one, order_of(site.spec(live, "sleep", "600")))),
                wire.Launched,
            )
            for target in (key, live):
                for make in (
                    lambda one, target=target: wire.Signal(one, target, number),
                    lambda one, target=target: wire.SetLimit(one, target, number),
                    lambda one, target=target: wire.Suspend(one, target, False),
                    lambda one, target=target: wire.Terminate(one, target, StepEndCause.ORPHANED, number),
                ):
                    answer = agent.ask(make)
                    assert isinstance(answer, wire.Done | wire.Refused)
                    assert "internal error" not in getattr(answer, "text", "")
            agent.send(wire.Contact((number % 2**63, key.node % 2**63)))
            agent.end(live)

        @settings(suppress_health_check=list(HealthCheck), deadline=None)
        @given(st.binary(max_size=40) | st.recursive(st.none() | numbers | texts, st.lists).map(_encode))
        def garbage(body: bytes) -> None:
            with_garbage = RawAgent(site)
            try:
                with_garbage.send_body(body)
                # Answered, refused or hung up: the others do not feel it.
                assert isinstance(agent.ask(wire.ListSteps), wire.Listing)
            finally:
                with_garbage.close()

        try:
            launch()
            other()
            garbage()
            assert site.pid() == pid, "it was started anew"
            assert isinstance(agent.ask(wire.ListSteps), wire.Listing)
        finally:
            agent.close()
        assert "internal error" not in Path(Place(site.state).log).read_text()
