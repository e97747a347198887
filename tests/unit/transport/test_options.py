"""Endpoints, targets and what this host's own address is."""

from __future__ import annotations

import pytest

from eslurm.transport.options import grpc_target, is_loopback
from tests.support.loops import run


@pytest.mark.parametrize(
    ("endpoint", "target"),
    [("127.0.0.1:80", "ipv4:127.0.0.1:80"), ("[::1]:80", "ipv6:[::1]:80")],
)
def test_numeric_endpoints_need_no_resolver(endpoint: str, target: str) -> None:
    assert run(grpc_target(endpoint)) == target


def test_a_name_is_resolved_before_grpc_sees_it() -> None:
    assert run(grpc_target("localhost:80")) in ("ipv4:127.0.0.1:80", "ipv6:[::1]:80")


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.8.0.1", True), ("::1", True), ("localhost", True), ("10.0.0.1", False), ("h", False)],
)
def test_loopback_is_known(host: str, own: bool) -> None:
    assert is_loopback(host) is own
