"""The cost of scraping. Goal: bounds of a median are the textbook's, a verdict needs evidence, and the scraper looks when it
is told to and only then.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.watch_rate import BLOCKS_MIN, changes, interval, is_settled
from benchmarks.watcher import Watcher

PAGE = b"eslurm_level 1\n" * 5_000


def rates(change_percent: float, blocks: int, noise: float) -> dict[bool, list[float]]:
    """Runs with and without, of which those with are so much faster or slower."""
    draw = random.Random(5)

    def runs(rate: float) -> list[float]:
        return [rate * math.exp(draw.gauss(0, noise)) for _ in range(2 * blocks)]

    return {False: runs(600), True: runs(600 * (1 + change_percent / 100))}


def test_bounds_of_a_median_are_those_of_the_sign_test() -> None:
    # The largest number of values that may lie outside on each side, of tables at the level of 1 %.
    for count, outside in ((8, 0), (12, 1), (15, 2), (20, 3), (30, 7), (40, 11)):
        values = [float(value) for value in range(count)]
        assert interval(values) == (outside, count - 1 - outside), count
    assert interval([3.0, 1.0]) == (1.0, 3.0)


def test_a_change_is_found_block_by_block() -> None:
    # Twice as fast in one block and half as fast in the other: what drifts between blocks is no change.
    found = changes({False: [100, 100, 200, 200], True: [110, 110, 220, 220]})
    assert [round(change, 9) for change in found] == [10, 10]


def test_a_verdict_needs_evidence() -> None:
    assert not is_settled({False: [], True: []})
    assert not is_settled(rates(0, BLOCKS_MIN - 1, 0.001))
    assert is_settled(rates(-1, 12, 0.01))
    assert is_settled(rates(-9, 12, 0.01))
    assert not is_settled(rates(-1, 12, 0.3))


@contextmanager
def served(seen: list[str]) -> Iterator[str]:
    """An endpoint that writes down who looks."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(PAGE)))
            self.end_headers()
            # Before the last byte: whoever has the page finds it written down.
            seen.append(self.path)
            self.wfile.write(PAGE)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_scraper_looks_while_it_shall() -> None:
    looks: list[str] = []
    with served(looks) as endpoint:
        watcher = Watcher([endpoint])
        watcher.look(False)
        assert looks == []
        watcher.look(True)
        while not looks:
            watcher.look(True)
        watcher.look(False)
        before = len(looks)
        seen = watcher.result()
    assert len(seen.took_ms[endpoint]) == len(looks) == before
    assert seen.bytes == {endpoint: len(PAGE)}
    assert set(looks) == {"/metrics"}
