"""Another user of a controller's host, and the port that the controller will need when it follows the leader."""

from __future__ import annotations

import os
import socket
from contextlib import closing

import pytest

from esctld.port import HeldPort
from tests.security.conftest import STRANGER


def binds_as(uid: int, host: str, port: int, option: int) -> bool:
    """Check that a process of that user can bind the port."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            with socket.socket() as thief:
                if option:
                    thief.setsockopt(socket.SOL_SOCKET, option, 1)
                thief.bind((host, port))
                thief.listen()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("option", [0, socket.SO_REUSEADDR, socket.SO_REUSEPORT])
@pytest.mark.usefixtures("as_root")
def test_another_user_cannot_take_a_standby_s_port(host: str, option: int) -> None:
    with closing(HeldPort("127.0.0.1:0")) as held:
        port = int(held.endpoint.rpartition(":")[2])
        assert not binds_as(STRANGER, host, port, option)
    assert binds_as(STRANGER, host, port, option), "the attack works on a port that nobody holds"


def test_a_port_that_another_user_has_is_told_of_at_the_start() -> None:
    with socket.socket() as thief:
        thief.bind(("127.0.0.1", 0))
        thief.listen()
        port = thief.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen at 127.0.0.1:{port}: .*end what has the port"):
            HeldPort(f"127.0.0.1:{port}")


@pytest.mark.parametrize("option", [0, socket.SO_REUSEADDR, socket.SO_REUSEPORT])
@pytest.mark.usefixtures("as_root")
def test_a_port_that_an_older_release_used_a_moment_ago_is_held_all_the_same(option: int) -> None:
    with socket.socket() as listener:
        # Not shared, as older releases did: connections that it ends stay for a minute.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            listener.accept()[0].close()
    with closing(HeldPort(f"127.0.0.1:{port}")):
        assert not binds_as(STRANGER, "127.0.0.1", port, option)
