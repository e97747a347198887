"""Accounts, QOS, limits and reservations of a live cluster: defined, shown, enforced, kept over a crash."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster

USER = pwd.getpwuid(65_534 if os.getuid() == 0 else os.getuid()).pw_name

FILE = f"""
[account.science]
shares = 10

[account.physics]
parent = "science"

[account.old]
validity = "..2017-08-31"

[user.{USER}]
accounts = ["physics"]
qos = ["normal"]

[qos.normal]
time_max = "2h"

[limit.ncpus]
user = "{USER}"
resource = "ncpus"
items = 3
"""


@pytest.fixture
def site() -> Iterator[LiveCluster]:
    """A cluster that only registered users may use, with none yet."""
    with running(nodes=4, policy={"accounts_enforced": "true", "zone": '"Europe/Berlin"'}) as cluster:
        yield cluster


def load(site: LiveCluster, directory: Path, text: str) -> str:
    path = directory / "policies.toml"
    path.write_text(text)
    ran = site.run("esctl", "load", str(path))
    return ran.out + ran.err


def test_policies_are_defined_enforced_and_kept(site: LiveCluster, tmp_path: Path) -> None:
    assert "account old: validity: it ended on 2017-09-01T00:00:00" in load(site, tmp_path, FILE)
    assert "no account is set" in site.run("esctl", "account", "show").out, "all or nothing"
    text = FILE.replace("..2017-08-31", "2017-08-31..")
    assert load(site, tmp_path, text) == "6 policies are set\n"
    shown = json.loads(site.run("esctl", "--json", "limit", "show", "ncpus").out)["policies"]
    assert shown == [
        {
            "kind": "limit",
            "name": "ncpus",
            "user": USER,
            "resource": "cores",
            "items": "3",
            "duration": "none",
            "area": "none",
            "validity": "always",
            "state": "active",
        }
    ]
    job = site.user_job("sleep 60", "-n", "2")
    told = site.run("esctl", "show", "job", str(job)).out
    assert "Account=physics" in told and "QOS=normal" in told
    assert site.run("esqueue", "-h", "-j", str(job), "-o", "%a %q %v %y").out.split() == [
        "physics",
        "normal",
        "(null)",
        "0",
    ]
    site.kill("esctld")
    site.launch("esctld")
    assert "physics" in site.run("esctl", "user", "show", USER).out
    refused = site.run_as_user("essubmit", "-n", "4", "--wrap", "true")
    assert refused.code != 0 and "ncpus" in refused.err
    refused = site.run_as_user("essubmit", "-t", "3:00:00", "--wrap", "true")
    assert "QOS normal allows" in refused.err
    refused = site.run_as_user("essubmit", "-A", "old", "--wrap", "true")
    assert f"'old' is not one of user {USER}'s" in refused.err
    refused = site.run_as_user("esctl", "account", "add", "mine")
    assert refused.code != 0 and ("operator" in refused.err or os.getuid() != 0)
    assert f"still used by user {USER}" in site.run("esctl", "account", "delete", "physics").err
    site.do("escancel", str(job))
    site.do("esctl", "limit", "delete", "ncpus")
    findings = json.loads(site.run("esctl", "--json", "doctor").out)["findings"]
    assert not [one for one in findings if one["check"] == "store"], "rows and state say the same"
    site.start()


def test_a_reservation_is_made_of_free_nodes_and_shown_in_the_sites_zone(
    site: LiveCluster, tmp_path: Path
) -> None:
    assert load(site, tmp_path, FILE.replace("..2017-08-31", "2017-08-31..")) == "6 policies are set\n"
    site.do(
        "esctl",
        "reservation",
        "add",
        "course",
        "nodes=2",
        "start=2030-01-31T08:00",
        "duration=4h",
        "users=root",
    )
    shown = json.loads(site.run("esctl", "--json", "reservation", "show").out)["policies"]
    (one,) = shown
    assert one["nodes"] == "cn[0001-0002]" and one["state"] == "waiting"
    assert one["validity"] == "2030-01-31T08:00:00..2030-01-31T12:00:00"
    ran = site.run(
        "esctl", "reservation", "add", "other", "nodes=cn0002", "start=2030-01-31T11:00", "duration=1h"
    )
    assert "reservation course has cn0002 then, too (from 2030-01-31T11:00:00)" in ran.err
    refused = site.run_as_user("essubmit", "--reservation", "course", "--wrap", "true")
    assert refused.code != 0 and "'course' is not open to user" in refused.err
    site.do("esctl", "reservation", "modify", "course", "end=2030-02-01T00:00")
    site.do("esctl", "reservation", "delete", "course")
    assert "no reservation is set" in site.run("esctl", "reservation", "show").out
