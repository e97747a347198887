"""Arbitrary input of an administrator, for `esctl KIND add NAME` or in a file for `esctl load`: a policy, or one line."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from escli.admin.policies import read_file
from escli.failures import CommandFailed
from eslurm.compat.errors import OptionError
from eslurm.compat.policies import KEYS, Site, read_change, shown
from tests.kits.mutation import damaged, damaged_texts


def number_of(group: str) -> str:
    return {"physics": "1005"}[group]


SITE = Site(1_800_000_000_000_000, lambda _: 3600, number_of, lambda number: number)
EXAMPLES = [
    "always",
    "2026-03-01T08:00..2030-03-01T18:00",
    "cron(0 8 1-7 */2 mon)+10h",
    "10/20%",
    "cores<4 and time<1h or group=physics",
    "4d3h",
    "640",
    "ada,bob",
    "gpu",
    "*",
    "cn[01-04]",
    "all",
    "yes",
    "now+2hours",
    "1.5",
    "requeue",
    "ib&!old",
    "",
]
TEXT = damaged_texts(EXAMPLES) | st.sampled_from(EXAMPLES) | st.text(max_size=20)
BASE = {
    "limit": [("user", "ada"), ("items", "4")],
    "pool": [("items", "1")],
    "reservation": [("nodes", "4"), ("start", "tomorrow"), ("duration", "1h")],
    "defaults": [("time", "5")],
}


@pytest.mark.parametrize("action", ["add", "modify"])
@pytest.mark.parametrize("kind", KEYS)
@given(data=st.data())
def test_settings_are_a_policy_or_one_line(kind: str, action: str, data: st.DataObject) -> None:
    keys = data.draw(st.lists(st.sampled_from(sorted(KEYS[kind])), max_size=3, unique=True))
    settings = [(key, data.draw(TEXT)) for key in keys]
    settings += [pair for pair in BASE.get(kind, []) if pair[0] not in keys and action == "add"]
    try:
        change = read_change(action, kind, "x", settings, SITE)
    except OptionError as error:
        assert str(error).startswith(f"{kind} x: ")
        assert str(error).isprintable() and len(str(error)) < 600
        return
    if action == "modify" or kind == "reservation":
        return
    assert change.policy is not None
    again = read_change("set", kind, "x", list(shown(change.policy, SITE).items()), SITE)
    assert again.policy == change.policy, "what is set can be shown, and read again"


@pytest.mark.parametrize(
    ("kind", "settings", "told"),
    [
        ("pool", [], "says not what it keeps"),
        ("reservation", [("nodes", "0"), ("start", "now"), ("duration", "1h")], "nodes: '0' are none"),
        ("defaults", [("user", "ada"), ("force.time", "")], "say nothing"),
        ("defaults", [("constraint", "a&(b")], "constraint: 'a&(b'"),
        (
            "limit",
            [("user", "ada"), ("resource", "a\x1b[2J"), ("items", "1")],
            "is not the name of a resource",
        ),
        ("limit", [("group", "9" * 20), ("items", "1")], "is no group here"),
        ("limit", [("user", "ada"), ("duration", "-1")], "duration: '-1' is below 0"),
        ("reservation", [("nodes", "1"), ("feature", "[")], "feature: '[' is not a feature"),
    ],
)
def test_what_means_nothing_is_refused(kind: str, settings: list[tuple[str, str]], told: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_change("add", kind, "x", settings, SITE)
    assert told in str(caught.value)


def test_a_default_taken_back_leaves_the_others() -> None:
    change = read_change("add", "defaults", "x", [("force.time", ""), ("partition", "main")], SITE)
    assert change.policy is not None
    assert shown(change.policy, SITE) == {"partition": "main"}


FILE = b"""
[account.physics]
shares = 10
[user.ada]
accounts = ["physics"]
qos = ["normal", "urgent"]
[limit.aug]
user = "ada"
items = "30/45%"
[defaults.site]
time = "1:00:00"
force.partition = "main"
"""


@given(damaged([FILE]) | st.binary(max_size=60))
@example(b"[account.x]\nshares = " + b"[" * 5_000 + b"]" * 5_000)
@example(b"[account.x]\nshares = " + b"9" * 5_000)
@example(b"[account.x]\n" + b"a." * 2_000 + b"b = 1\n")
@example(b'[account.x]\n"a\\n\\u001b" = [[1]]\n')
@example(b'["a\\u001b[2J"]\nx = 1\n')
@example(b"[account.x]\nshares = inf\nparent = 2026-01-01\n")
def test_a_file_is_settings_or_one_line(raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "policies.toml")
        path.write_bytes(raw)
        try:
            found = read_file(str(path))
        except CommandFailed as failure:
            assert str(path) in failure.text
            assert failure.text.isprintable() and len(failure.text) < 600
            return
    for kind, name, settings in found:
        assert kind in KEYS and isinstance(name, str)
        assert all(isinstance(key, str) and isinstance(value, str) for key, value in settings)
