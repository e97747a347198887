"""The model of the curves: small cases computed by hand, its memory, and what the published curves claim.

The hand-computed system: latency 1, dial 0.5, send 0.1, hop 0.2, merge 0.01, act 3, two tries of 10. So a live
leaf answers 0.5 + 2 + 0.2 + 3 = 5.7 after it was sent to, a silent one is given up after 20, a refusing one after 4.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from benchmarks.curves import __main__ as command
from benchmarks.curves import ablation, ratios, satellites, slope
from benchmarks.curves.drawing import mean_s, ours, paper, percent, seconds
from benchmarks.curves.parameters import (
    ALIVE,
    HEARTBEAT,
    LOAD,
    OURS,
    PAPER,
    REFUSED,
    SILENT,
    Message,
    Rescue,
    System,
    budget_s,
    satellites_for,
)
from benchmarks.curves.structures import Cluster, Layout, broadcast_s, draw
from benchmarks.curves.walk import Walk
from eslurm.core.relay.construct import TreeShape
from eslurm.core.relay.grouping import BALANCED

SIMPLE = System(
    name="simple",
    latency_s=1.0,
    dial_s=0.5,
    send_s=0.1,
    send_node_s=0.0,
    leg_s=0.1,
    hop_s=0.2,
    merge_s=0.01,
    merge_node_s=0.0,
    construct_node_s=0.0,
    threads=50,
    frees_on_ack=False,
    tries=2,
    silent_s=10.0,
    rescue=Rescue.NEXT_HEAD,
    poll_s=60.0,
    read_s=0.125,
)
MESSAGE = Message(name="test", bulk_s=0.0, act_s=3.0)
TREE = Layout(structure="tree", width=2)
STAR = Layout(structure="star", width=2)


def time_s(states: list[int], layout: Layout = TREE, **changes: object) -> float:
    system = msgspec.structs.replace(SIMPLE, **changes)
    return round(broadcast_s(Cluster(bytes(states)), layout, system, MESSAGE), 9)


@pytest.mark.parametrize(
    ("states", "wanted_s"),
    [
        # sent at 0.1, back at 5.8, taken in
        ([ALIVE], 5.81),
        ([SILENT], 20.11),
        ([REFUSED], 4.11),
        # 0 sends to 1: 0.1 + 1.5 + [0.2 + 0.1 + 5.7 + 0.01] + 1; 2 was sent to at 0.2 and is back before
        ([ALIVE, ALIVE, ALIVE], 8.62),
        # the head is found silent after 0.1 + 20, then its leaf is sent to
        ([SILENT, ALIVE, ALIVE], 25.91),
        ([SILENT, SILENT, ALIVE], 40.21),
        ([ALIVE, SILENT, ALIVE], 22.92),
    ],
)
def test_small_trees(states: list[int], wanted_s: float) -> None:
    assert time_s(states) == wanted_s


@pytest.mark.parametrize(
    ("rescue", "wanted_s"),
    [
        # Below the silent head lie 1, 2 and 3, all alive; the head is given up at 20.1.
        # 1 gets the rest as its list: 0.1 + 2.5 + [0.2 + 0.2 + 5.7 + 0.01]
        (Rescue.NEXT_HEAD, 28.82),
        # three calls of 0.1 + 5.7 + 0.01
        (Rescue.ONE_BY_ONE, 37.54),
        # three leaves, the last sent to after 0.3
        (Rescue.AT_ONCE, 26.12),
        # 1 with 2 below, and 3
        (Rescue.ADOPT, 28.73),
    ],
)
def test_what_lies_below_a_dead_head_is_rescued(rescue: Rescue, wanted_s: float) -> None:
    layout = Layout(structure="tree", width=2)
    states = [SILENT, ALIVE, ALIVE, ALIVE, ALIVE, ALIVE, ALIVE, ALIVE]
    assert time_s(states, layout, rescue=rescue) == wanted_s


def test_threads_are_held_until_the_answer_or_until_the_acknowledgement() -> None:
    # Sent at 0.1 and 0.2, back at 5.8 and 5.9: only then the third and fourth leave.
    assert time_s([ALIVE] * 4, STAR, threads=2) == 11.71
    # An acknowledgement is back 2.5 after the send: the third leaves at 2.7, the fourth at 2.8.
    assert time_s([ALIVE] * 4, STAR, threads=2, frees_on_ack=True) == 8.51
    assert time_s([ALIVE] * 4, STAR, threads=4) == 6.11


def test_ring_and_pull() -> None:
    # Two steps of 0.1 + 0.5 + 1 + 0.2, one refusal of 4, then act, tell, take in.
    assert time_s([ALIVE, REFUSED, ALIVE], Layout(structure="ring", width=2)) == 11.61
    pull = Layout(structure="pull", width=2)
    assert time_s([ALIVE, SILENT], pull) == time_s([ALIVE, ALIVE], pull) == 65.125
    # 1,000 nodes that look at the board keep it busy for longer than their period.
    assert time_s([ALIVE] * 1000, pull) == 130.125


def test_satellites_share_the_list() -> None:
    # Each: two leaves, 0.2 + 5.7 + 0.01; a leg takes 2.7 beside that, and the second leaves at 0.2.
    assert time_s([ALIVE] * 4, msgspec.structs.replace(TREE, satellites=2)) == 8.82
    # Eq. 1: two nodes are for one satellite.
    one = time_s([ALIVE] * 2, msgspec.structs.replace(TREE, satellites=1))
    assert time_s([ALIVE] * 2, msgspec.structs.replace(TREE, satellites=5)) == one
    # Only the controller's own sends cost what legs cost.
    assert time_s([ALIVE] * 4, msgspec.structs.replace(TREE, satellites=2), leg_s=1.1) == 10.82


def test_a_root_takes_a_second_look_at_suspects() -> None:
    # Given up at 10.1 and 10.2; the looks leave at 10.2 and, one at a time, at 20.3.
    assert time_s([SILENT, SILENT], tries=1, rechecks=1) == 30.3
    assert time_s([SILENT, SILENT], tries=1, rechecks=2) == 20.3
    # Refused at 2.1, looked at after 5 more and 0.1, refused 2 later.
    assert time_s([REFUSED], tries=1, rechecks=1, recheck_delay_s=5.0) == 9.2


def test_a_prediction_puts_the_dead_node_on_a_leaf() -> None:
    cluster = Cluster(bytes([SILENT, ALIVE, ALIVE]), frozenset({0}))
    fptree = Layout(structure="fptree", width=2)
    known_s = broadcast_s(cluster, fptree, SIMPLE, MESSAGE)
    assert known_s == pytest.approx(time_s([ALIVE, SILENT, ALIVE]))
    assert known_s < broadcast_s(cluster, TREE, SIMPLE, MESSAGE)


@pytest.mark.parametrize("rescue", Rescue)
@pytest.mark.parametrize("grouping", [TREE.grouping, BALANCED])
def test_what_is_remembered_is_what_would_be_computed(rescue: Rescue, grouping: object) -> None:
    rng = random.Random(rescue.value)
    shape = TreeShape(3, 5, grouping)  # type: ignore[arg-type]
    system = msgspec.structs.replace(SIMPLE, rescue=rescue, merge_node_s=0.003, send_node_s=0.002)
    reused = Walk(system, MESSAGE, shape)
    for _ in range(40):
        dead_share = rng.choice([0, 0.1, 0.5, 1])
        states = bytes(
            rng.choice([REFUSED, SILENT]) if rng.random() < dead_share else ALIVE
            for _ in range(rng.randint(0, 300))
        )
        assert reused.root_s(states) == Walk(system, MESSAGE, shape).root_s(states)


def test_a_larger_share_adds_to_the_dead_of_a_smaller_one() -> None:
    few, many = (draw(1000, share, 3, recall=0.8, refused_share=0.5) for share in (0.1, 0.3))
    assert few == draw(1000, 0.1, 3, recall=0.8, refused_share=0.5)
    assert few != draw(1000, 0.1, 4, recall=0.8, refused_share=0.5)
    assert all(many.states[node] for node in range(1000) if few.states[node])
    assert (many.states.count(REFUSED), many.states.count(SILENT), len(many.predicted)) == (150, 150, 240)
    assert all(many.states[node] for node in many.predicted)


# What the paper says of its curves, at its own size.


def test_each_percent_of_failed_nodes_costs_a_plain_tree_3_to_28_seconds() -> None:
    """E-32. Steps of 5 %, since a step between two single draws can be next to nothing."""
    times_s = [mean_s(4096, share, paper("tree"), PAPER, LOAD) for share in (0.0, 0.05, 0.1)]
    for before_s, after_s in ((times_s[0], times_s[1]), (times_s[1], times_s[2])):
        assert 3 <= (after_s - before_s) / 5 <= 28


def test_the_fp_tree_stays_below_ten_seconds_where_others_take_minutes() -> None:
    """E-65."""
    cluster = draw(4096, 0.3, 1)
    found_s = {
        structure: broadcast_s(cluster, paper(structure), ratios.SEPARATED, LOAD)
        for structure in ratios.STRUCTURES
    }
    assert found_s["fptree"] < 10
    assert min(found_s["ring"], found_s["star"], found_s["tree"]) > 120
    healthy_s = broadcast_s(draw(4096, 0.0, 1), paper("pull"), ratios.SEPARATED, LOAD)
    assert found_s["pull"] == pytest.approx(healthy_s, rel=0.01)


def test_satellites_and_the_fp_tree_each_save_time_when_nodes_fail() -> None:
    """E-64."""
    cluster = draw(4096, 0.02, 1)
    found_s = {
        name: broadcast_s(cluster, layout, PAPER, LOAD) for name, layout in ablation.variants(4096).items()
    }
    assert found_s["both"] < found_s["satellites"] < found_s["centralised"]
    assert found_s["FP-Tree"] < found_s["centralised"]


def test_there_can_be_too_few_and_too_many_satellites() -> None:
    """E-69."""
    found = satellites.times_s(20_480, "paper")
    best = satellites.best(found)
    assert satellites.COUNTS[0] < best < satellites.COUNTS[-1]
    assert found[20] < 1.05 * found[best]
    assert min(found[1], found[300]) > 1.5 * found[best]


def test_many_nodes_with_failures_are_walked() -> None:
    nodes = 200_000
    cluster = draw(nodes, 0.3, 1, recall=0.8, refused_share=0.5)
    assert 0.5 < broadcast_s(cluster, ours("fptree", satellites_for(nodes)), OURS, HEARTBEAT) < 10


# The command and its document.


def test_a_share_is_found_between_two_points() -> None:
    falling = [0.0, 0.0, -0.1, -0.2, -0.3, -0.5, -0.7, -0.9]
    at = ablation.share_at(falling, -0.6)
    assert at is not None and 0.01 < at < 0.02
    assert ablation.share_at(falling, -0.95) is None


def test_the_ends_of_the_paper_s_patience() -> None:
    assert budget_s(2048) == pytest.approx(64.5, abs=0.1)
    assert [satellites_for(nodes) for nodes in (100, 20_480, 1_000_000)] == [2, 5, 200]


def test_numbers_for_people() -> None:
    assert [seconds(value) for value in (0.05, 6.07, 81.4, 197, 1244, 7385)] == [
        "0.050 s",
        "6.07 s",
        "81.4 s",
        "197 s",
        "21 min",
        "2.1 h",
    ]
    assert percent(0.0005) == "0.05 %"


def test_only_what_is_between_the_marks_is_replaced() -> None:
    text = "words\n<!-- e32 -->\nold\n<!-- end of e32 -->\nmore\n"
    once = command.replaced(text, "e32", ["new"])
    assert once == "words\n<!-- e32 -->\n\nnew\n\n<!-- end of e32 -->\nmore\n"
    assert command.replaced(once, "e32", ["new"]) == once
    with pytest.raises(ValueError, match="no marks for e64"):
        command.replaced(text, "e64", [])


def test_the_command_makes_what_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pretend(directory: Path) -> Iterator[str]:
        (directory / "picture.svg").write_text("drawn")
        yield "| a table |"

    monkeypatch.setattr(command, "CURVES", {"e1": pretend})
    (tmp_path / command.DOCUMENT).write_text("<!-- e1 -->\n<!-- end of e1 -->\n")
    assert command.main(["e2"], tmp_path) == command.EXIT_USAGE
    assert "no curve e2: use e1" in capsys.readouterr().err
    assert command.main([], tmp_path) == 0
    assert "| a table |" in (tmp_path / command.DOCUMENT).read_text()
    assert (tmp_path / "picture.svg").exists()


def test_the_document_is_what_the_command_writes() -> None:
    """Every picture is there, and the tables are of the parameters as they are now."""
    text = (command.RESULTS / command.DOCUMENT).read_text()
    for name in command.CURVES:
        assert f"<!-- {name} -->" in text
    for part in text.split("](")[1:]:
        target = part.partition(")")[0]
        assert (command.RESULTS / target).exists(), target
    healthy = satellites.row("paper", 20_480, satellites.times_s(20_480, "paper"))
    assert f"| {' | '.join(healthy)} |" in text
    plain = next(slope.cases(4096))
    assert f"| {' | '.join(slope.row(4096, plain.name, plain.times_s(4096)))} |" in text
