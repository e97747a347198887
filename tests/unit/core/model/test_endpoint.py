"""Endpoints as people write them."""

from __future__ import annotations

import pytest

from eslurm.core.model.endpoint import split_endpoint


@pytest.mark.parametrize(
    ("endpoint", "parts"),
    [
        ("127.0.0.1:9464", ("127.0.0.1", 9464)),
        ("[::1]:0", ("::1", 0)),
        ("ctl1.example.org:7400", ("ctl1.example.org", 7400)),
    ],
)
def test_host_and_port(endpoint: str, parts: tuple[str, int]) -> None:
    assert split_endpoint(endpoint) == parts


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "host",
        "host:",
        ":80",
        "host:port",
        "host:65536",
        "host:-1",
        "host:\u0664",
        "a b:1",
        "a\n:1",
        "h:" + "1" * 5000,
    ],
)
def test_a_malformed_endpoint_is_named(endpoint: str) -> None:
    with pytest.raises(ValueError, match=r"^(an empty value|'.{0,62}') is no address: write HOST:PORT$"):
        split_endpoint(endpoint)
