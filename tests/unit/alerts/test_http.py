"""Heads and bodies as they come apart on the wire, from memory: no sockets. Every read has its bound."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.alerts.http import parse_url
from eslurm.telemetry.http import HEAD_BYTES_MAX, Head, HttpError, read_body, read_head
from tests.support.loops import run

BODY_MAX = 1000


def reader_of(data: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=HEAD_BYTES_MAX)
    reader.feed_data(data)
    reader.feed_eof()
    return reader


def head_of(data: bytes) -> Head:
    async def scenario() -> Head:
        return await read_head(reader_of(data))

    return run(scenario())


def body_of(fields: Mapping[str, str], data: bytes, until_end: bool = False) -> bytes:
    async def scenario() -> bytes:
        return await read_body(reader_of(data), fields, BODY_MAX, until_end)

    return run(scenario())


def test_a_head_is_read_whatever_the_case_of_its_fields() -> None:
    head = head_of(b"HTTP/1.1 503 Service Unavailable\r\nCONTENT-length:  3 \r\nx: a:b\r\n\r\nabc")
    assert head.line == ("HTTP/1.1", "503", "Service Unavailable")
    assert head.fields == {"content-length": "3", "x": "a:b"}
    assert head_of(b"HTTP/1.1 200\r\n\r\n").line == ("HTTP/1.1", "200", "")


@pytest.mark.parametrize(
    ("data", "status", "text"),
    [
        (b"", 400, "0 bytes into the head"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n", 400, "25 bytes into the head"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", 400, "not HTTP"),
        (b"GET / HTTP/1.1\r\nno field\r\n\r\n", 400, "malformed"),
        (b"GET / HTTP/1.1\r\nfolded: 1\r\n more: 2\r\n\r\n", 400, "malformed"),
        (b"GET / HTTP/1.1\r\nContent-Length: 1\r\ncontent-length: 2\r\n\r\n", 400, "twice"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * (2 * HEAD_BYTES_MAX) + b"\r\n\r\n", 431, "too long"),
    ],
)
def test_what_is_no_head_is_refused(data: bytes, status: int, text: str) -> None:
    with pytest.raises(HttpError, match=text) as caught:
        head_of(data)
    assert caught.value.status == status


def test_a_body_comes_by_length_in_chunks_or_to_the_end() -> None:
    assert body_of({"content-length": "3"}, b"abcdef") == b"abc"
    chunks = b"3;name=value\r\nabc\r\nA\r\n0123456789\r\n0\r\ntrailer: x\r\n\r\n"
    assert body_of({"transfer-encoding": "chunked"}, chunks) == b"abc0123456789"
    assert body_of({}, b"to the end", until_end=True) == b"to the end"


@pytest.mark.parametrize(
    ("fields", "data", "status"),
    [
        ({}, b"abc", 411),
        ({"content-length": "-1"}, b"abc", 400),
        ({"content-length": "1_0"}, b"abc", 400),
        ({"content-length": "9" * 30}, b"abc", 400),
        ({"content-length": str(BODY_MAX + 1)}, b"abc", 413),
        ({"content-length": "4"}, b"abc", 400),
        ({"transfer-encoding": "gzip, chunked"}, b"abc", 501),
        ({"transfer-encoding": "chunked"}, b"-3\r\nabc\r\n0\r\n\r\n", 400),
        ({"transfer-encoding": "chunked"}, b"3\r\nabcdef\r\n0\r\n\r\n", 400),
        ({"transfer-encoding": "chunked"}, b"3e9\r\n", 413),
        ({"transfer-encoding": "chunked"}, b"3\r\nabc\r\n", 400),
        ({"transfer-encoding": "chunked"}, b"3;" + b"x" * 5000 + b"\r\nabc\r\n0\r\n\r\n", 400),
        ({"transfer-encoding": "chunked"}, b"3;" + b"x" * (2 * HEAD_BYTES_MAX) + b"\r\nabc", 400),
    ],
)
def test_what_is_no_body_is_refused(fields: dict[str, str], data: bytes, status: int) -> None:
    with pytest.raises(HttpError) as caught:
        body_of(fields, data)
    assert caught.value.status == status


def test_a_body_without_an_end_is_not_kept() -> None:
    with pytest.raises(HttpError) as caught:
        body_of({}, b"x" * (BODY_MAX + 1), until_end=True)
    assert caught.value.status == 413


@given(
    st.binary(max_size=300), st.sampled_from([{}, {"transfer-encoding": "chunked"}, {"content-length": "9"}])
)
def test_any_bytes_are_read_or_refused(data: bytes, fields: dict[str, str]) -> None:
    async def scenario() -> None:
        for part in (read_head(reader_of(data)), read_body(reader_of(data), fields, BODY_MAX, True)):
            try:
                await part
            except HttpError as error:
                assert 400 <= error.status < 600

    run(scenario())


def test_a_url_is_taken_apart_and_its_credentials_stay_out_of_its_name() -> None:
    target = parse_url("http://me:p%40ss@[::1]:9090/prom/x y?query=a b&c=%20")
    assert (target.host, target.port) == ("::1", 9090)
    assert target.path == "/prom/x%20y?query=a%20b&c=%20"
    assert target.name == "http://[::1]:9090/prom/x%20y"
    headers = dict(target.headers)
    assert headers["Host"] == "[::1]:9090"
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")) == b"me:p@ss"
    assert target.tls is None
    assert parse_url("https://mon").port == 443
    assert parse_url("https://mon").tls is not None


@pytest.mark.parametrize("url", ["mon:9090", "ftp://mon", "http://", "http://me:secret@:90", "me:secret@mon"])
def test_what_is_no_url_is_refused_without_showing_secrets(url: str) -> None:
    with pytest.raises(ValueError, match="no URL such as http://host:9090") as caught:
        parse_url(url)
    assert "secret" not in str(caught.value)


def test_a_port_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"[Pp]ort"):
        parse_url("http://mon:99999")
