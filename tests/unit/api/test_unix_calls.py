"""Calls through a Unix door from a program with an event loop: replies, refusals, doors that are away or silent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eslurm.api import methods
from eslurm.api.authoriser import Gate
from eslurm.api.principals import Principals
from eslurm.api.unix_calls import UnixCalls
from eslurm.api.unix_server import UnixDoor
from eslurm.core.model.job import Principal
from eslurm.ports.door import DoorError, DoorRefused, DoorUnreachable, Status
from eslurm.v1 import controller_pb2 as pb
from tests.support.loops import both_loops, run
from tests.unit.api.kit import PATIENCE_S, REQUEST_ID, Service, nobody_operates, until


def door_of(service: Service, path: Path, principals: Principals) -> UnixDoor:
    return UnixDoor(path, Gate(service, nobody_operates), principals)


@both_loops
def test_calls_share_idle_connections(state_dir: Path, uvloop: bool) -> None:
    async def scenario() -> None:
        service, principals = Service(), Principals(lookup=lambda uid, gid: Principal("me", uid, gid))
        door = door_of(service, state_dir / "s", principals)
        await door.start()
        client = UnixCalls(state_dir / "s")
        for _ in range(3):
            assert (await client.call(methods.PING, pb.PingRequest(), PATIENCE_S)).cluster == "me"
        assert len(door.connections) == 1
        both = [client.call(methods.PING, pb.PingRequest(), PATIENCE_S) for _ in range(2)]
        await asyncio.gather(*both)
        assert len(door.connections) == 2
        # What is named keeps its name, what is not gets one.
        for request_id in (REQUEST_ID, REQUEST_ID, None):
            await client.call(methods.SUBMIT, pb.SubmitRequest(), PATIENCE_S, request_id)
        assert len(service.effects) == 2
        with pytest.raises(DoorRefused, match="is for operators") as refused:
            await client.call(methods.UPDATE_NODES, pb.UpdateNodesRequest(), PATIENCE_S)
        assert refused.value.status is Status.PERMISSION_DENIED
        assert len(door.connections) == 2
        await client.close()
        await until(lambda: not door.connections)
        await door.stop()
        principals.close()

    run(scenario(), uvloop=uvloop)


@both_loops
def test_doors_that_are_away_or_silent(state_dir: Path, uvloop: bool) -> None:
    async def scenario() -> None:
        service, principals = Service(), Principals(lookup=lambda uid, gid: Principal("me", uid, gid))
        client = UnixCalls(state_dir / "s")
        with pytest.raises(DoorUnreachable, match="No such file") as away:
            await client.call(methods.PING, pb.PingRequest(), PATIENCE_S)
        assert not away.value.maybe_done
        door = door_of(service, state_dir / "s", principals)
        await door.start()
        await client.call(methods.PING, pb.PingRequest(), PATIENCE_S)
        service.hold = True
        with pytest.raises((DoorUnreachable, DoorRefused), match=r"deadline|in time"):
            await client.call(methods.PING, pb.PingRequest(), 0.05)
        given_up = asyncio.create_task(client.call(methods.PING, pb.PingRequest(), PATIENCE_S))
        service.entered.clear()
        await service.entered.wait()
        given_up.cancel()
        await until(lambda: given_up.done() and not door.connections)
        service.hold = False

        def away_for_now() -> None:
            raise DoorError(Status.UNAVAILABLE, "it starts")

        service.misbehave.append(away_for_now)
        with pytest.raises(DoorRefused, match="it starts"):
            await client.call(methods.PING, pb.PingRequest(), PATIENCE_S)
        # A kept connection that the door has closed meanwhile is no reason to fail.
        await door.stop()
        door = door_of(service, state_dir / "s", principals)
        await door.start()
        await client.call(methods.PING, pb.PingRequest(), PATIENCE_S)
        await client.close()
        await door.stop()
        principals.close()

    run(scenario(), uvloop=uvloop)
