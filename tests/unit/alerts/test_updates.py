"""Which node an alert's labels name."""

from __future__ import annotations

import pytest

from eslurm.alerts.updates import LABEL_CHARS_MAX, find_node


@pytest.mark.parametrize(
    ("value", "node"),
    [
        ("cn0007", "cn0007"),
        ("cn0007:9100", "cn0007"),
        ("cn0007.rack1.site:9100", "cn0007.rack1.site"),
        ("cn0007:http", "cn0007:http"),
        ("[fe80::1]:9100", "fe80::1"),
        ("[fe80::1]", "fe80::1"),
        ("fe80::1", "fe80::1"),
        ("", None),
        (":9100", None),
        ("x" * LABEL_CHARS_MAX, "x" * LABEL_CHARS_MAX),
        ("x" * (LABEL_CHARS_MAX + 1), None),
    ],
)
def test_a_label_names_a_node_without_its_port(value: str, node: str | None) -> None:
    assert find_node({"instance": value, "node": "another"}, "instance") == node


def test_an_alert_without_the_label_names_no_node() -> None:
    assert find_node({"alertname": "DeadMansSwitch"}, "node") is None
