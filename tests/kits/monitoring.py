"""A real Prometheus and a real Alertmanager for tests: on loopback, in a directory of their own, ended with the test.

What Prometheus sees is `Thermometers`: a metrics endpoint whose values a test sets. Its one rule fires at once for
nodes above `LIMIT_CELSIUS`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support import groups
from tests.support.ports import free_port

LIMIT_CELSIUS = 90
START_S = 60.0

PROMETHEUS_CONFIG = """
global: {{scrape_interval: 250ms, evaluation_interval: 250ms}}
rule_files: [rules.yml]
alerting:
  alertmanagers: [{{static_configs: [{{targets: ["{alertmanager}"]}}]}}]
scrape_configs:
  - job_name: thermometers
    static_configs: [{{targets: ["{thermometers}"]}}]
"""

RULES = f"""
groups:
  - name: hardware
    rules:
      - {{alert: NodeHot, expr: node_temperature_celsius > {LIMIT_CELSIUS}, for: 0s, labels: {{severity: critical}}}}
      - {{alert: NodeWarm, expr: node_temperature_celsius > {LIMIT_CELSIUS - 10}, for: 1h}}
      - {{alert: DeadMansSwitch, expr: vector(1)}}
"""

ALERTMANAGER_CONFIG = """
route: {{receiver: eslurm, group_by: [alertname], group_wait: 0s, group_interval: 1s, repeat_interval: 4h}}
receivers:
  - name: eslurm
    webhook_configs:
      - url: http://{webhook}/alerts
        send_resolved: true
        http_config: {{authorization: {{credentials: {token}}}}}
"""


class Thermometers:
    """A metrics endpoint with one temperature per node."""

    def __init__(self) -> None:
        self._celsius: dict[str, float] = {}
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(owner.page().encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def set(self, **celsius: float) -> None:
        """These nodes, and no others, have these temperatures."""
        self._celsius = celsius

    def page(self) -> str:
        """The metrics in Prometheus' text format."""
        lines = [
            f'node_temperature_celsius{{node="{node}"}} {value}' for node, value in self._celsius.items()
        ]
        return "\n".join([*lines, ""])

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Monitor:
    """A running program of the monitoring system."""

    def __init__(self, process: subprocess.Popen[bytes], endpoint: str, log: Path) -> None:
        self._process = process
        self._log = log
        self.endpoint = endpoint
        self.url = f"http://{endpoint}"

    def get(self, path: str, **query: str) -> Any:
        """The answer of its API under /api/v1/."""
        words = f"?{urllib.parse.urlencode(query)}" if query else ""
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}{words}", timeout=60.0) as answer:
            return json.load(answer)["data"]

    def freeze(self) -> None:
        """Let it accept connections and answer nothing."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it and wait for that."""
        self._process.kill()
        self._process.wait()

    def wait_until_ready(self) -> None:
        """Returns when it answers; fails with its log when it does not."""
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/-/ready", timeout=1.0):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.02)
        pytest.fail(f"{self._process.args!r} does not start:\n{self._log.read_text()}", pytrace=False)


def program(name: str) -> str:
    """The path of the program; without it the test is not run."""
    found = shutil.which(name)
    return found or groups.lacks(name)


def free_endpoint() -> str:
    """An address on loopback where nobody listens."""
    return f"127.0.0.1:{free_port()}"


@contextmanager
def prometheus(thermometers: str, alertmanager: str) -> Iterator[Monitor]:
    """A Prometheus that watches `thermometers` and tells `alertmanager`."""
    with _directory() as directory:
        (directory / "rules.yml").write_text(RULES)
        config = PROMETHEUS_CONFIG.format(thermometers=thermometers, alertmanager=alertmanager)
        options = (f"--storage.tsdb.path={directory}/data", "--rules.alert.resend-delay=1s")
        with _running("prometheus", directory, config, options) as monitor:
            yield monitor


@contextmanager
def scraping(jobs: Mapping[str, Sequence[str]], rules: str) -> Iterator[Monitor]:
    """A Prometheus that scrapes these endpoints by the names of their jobs, and evaluates `rules`."""
    with _directory() as directory:
        (directory / "rules.yml").write_text(rules)
        config = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [
                {"job_name": name, "static_configs": [{"targets": list(endpoints)}]}
                for name, endpoints in jobs.items()
            ],
        }
        options = (f"--storage.tsdb.path={directory}/data",)
        # What is JSON is YAML, too.
        with _running("prometheus", directory, json.dumps(config), options) as monitor:
            yield monitor


@contextmanager
def alertmanager(endpoint: str, webhook: str, token: str) -> Iterator[Monitor]:
    """An Alertmanager at `endpoint` that tells `webhook`."""
    with _directory() as directory:
        config = ALERTMANAGER_CONFIG.format(webhook=webhook, token=token)
        options = (f"--storage.path={directory}/data", "--cluster.listen-address=")
        with _running("prometheus-alertmanager", directory, config, options, endpoint) as monitor:
            yield monitor


@contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="es-mon-", dir="/tmp") as name:
        yield Path(name)


@contextmanager
def _running(
    name: str, directory: Path, config: str, options: tuple[str, ...], endpoint: str = ""
) -> Iterator[Monitor]:
    endpoint = endpoint or free_endpoint()
    (directory / "config.yml").write_text(config)
    command = (
        program(name),
        f"--config.file={directory}/config.yml",
        f"--web.listen-address={endpoint}",
        "--log.level=warn",
        *options,
    )
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    monitor = Monitor(process, endpoint, log)
    try:
        monitor.wait_until_ready()
        yield monitor
    finally:
        monitor.kill()
