"""Traces: bounded, exact in the sum, and as text."""

from __future__ import annotations

import random

from eslurm.core.relay.messages import Leg, SendReply
from eslurm.core.relay.relay import Relay
from eslurm.core.relay.results import OK
from eslurm.core.relay.trace import NEVER_US, ROOT, LevelCost, Trace, TraceSpan, cause_of, from_spans, merge
from eslurm.core.relay.trace_text import BRANCHES_SHOWN, render
from tests.kits.relay_driving import T0, ack, advance, all_ok, of, order, reply
from tests.kits.relay_network import Faults, Network


def span(child: int, done_us: int = 10, how: str = "done", **more: int) -> TraceSpan:
    return TraceSpan(
        more.get("parent", ROOT), child, more.get("hop", 1), more.get("nodes", 1), 5, done_us, how
    )


def some_spans(seed: int, count: int) -> list[TraceSpan]:
    rng = random.Random(seed)
    hows = ["done", "local", "adopted: refused", "recheck"]
    return [
        span(node, rng.randint(NEVER_US, 99), rng.choice(hows), hop=rng.randint(1, 4))
        for node in range(count)
    ]


def test_levels_count_every_send_and_the_slowest() -> None:
    trace = from_spans(
        [span(1, 30), span(2, 90, "adopted: refused"), span(3, 7, hop=2), span(4, how="local")]
    )
    assert trace.levels == (LevelCost(1, 2, 10, 5, 90, 1), LevelCost(2, 1, 5, 5, 7, 0))


def test_trouble_is_kept_first_then_what_was_slow() -> None:
    spans = [span(1, 500), span(2, 10, "adopted: no acknowledgement"), span(3, 900), span(4, 20, "recheck")]
    trace = from_spans([*spans, span(5, 1)], spans_max=3)
    assert [one.child for one in trace.spans] == [2, 3, 4]
    assert trace.omitted == 2
    assert trace.levels[0].sends == 5


def test_merging_parts_in_any_order_loses_nothing_of_the_sum() -> None:
    spans = some_spans(1, 300)
    whole = from_spans(spans)
    parts = [from_spans(spans[start : start + 50], 20) for start in range(0, 300, 50)]
    merged = merge(parts, 40)
    assert merged == merge(reversed(parts), 40)
    assert merged.levels == whole.levels
    assert len(merged.spans) == 40 and merged.omitted == 260
    assert merge([whole]) == whole
    assert merge([whole, whole]).spans == whole.spans


def test_causes_are_four_words() -> None:
    assert cause_of("no progress") == "no progress"
    assert cause_of("failed to connect to 10.0.0.1:7000") == "refused"


def traced(relay: Relay, nodes, **more) -> None:
    relay.on_broadcast("p", order(nodes, traced=True, **more), T0)


def final_trace(actions) -> Trace:
    (final,) = [action.reply for action in of(actions, SendReply) if action.reply.final]
    assert final.trace is not None
    return final.trace


def test_a_relay_tells_whom_it_sent_to_and_when_they_answered() -> None:
    relay = Relay([1, 2])
    traced(relay, [1, 2, 3, 4], hop=1)
    relay.on_ack("q", ack(3, 4), T0 + 7)
    relay.on_local_result(7, [1, 2], OK, T0 + 8)
    relay.on_reply("q", reply([3], {3: OK}), T0 + 20)
    trace = final_trace(relay.on_reply("q", reply([4], {4: OK}), T0 + 30))
    assert trace.spans == (
        TraceSpan(1, 2, 2, 2, 0, 0, "local"),
        TraceSpan(1, 4, 2, 1, 7, 30, "done"),
        TraceSpan(2, 3, 3, 1, 7, 20, "done"),
    )


def test_who_is_adopted_and_looked_at_again_is_told_with_the_cause() -> None:
    root = Relay(root=True)
    traced(root, [1, 2, 3], width=1)
    root.on_refused(7, [1], "connection refused", T0 + 4)
    root.on_reply("q", reply([2], {2: OK, 3: OK}), T0 + 9)
    actions = advance(root, T0 + 100_000)
    actions += root.on_refused(7, [1], "connection refused", T0 + 100_000)
    assert [(one.child, one.nodes, one.how) for one in final_trace(actions).spans] == [
        (1, 1, "recheck: refused"),
        (1, 3, "adopted: refused"),
        (2, 2, "done"),
    ]


def test_a_satellites_own_sends_get_its_number_at_the_controller() -> None:
    root = Relay(root=True)
    root.start("c", order([1, 2, 3], traced=True), [Leg(-4, (1, 2, 3))], T0)
    root.on_ack("a", ack(1), T0 + 1)
    told = from_spans([span(1, hop=2), span(3, hop=3, parent=1)])
    heard = reply([1], all_ok([1, 2, 3]))
    final = type(heard)(7, (1,), heard.results, True, False, told)
    trace = final_trace(root.on_reply("a", final, T0 + 8))
    assert [(one.parent, one.child) for one in trace.spans] == [(ROOT, -4), (-4, 1), (1, 3)]
    assert [level.sends for level in trace.levels] == [1, 1, 1]


def test_an_untraced_broadcast_has_no_trace() -> None:
    relay = Relay([1])
    relay.on_broadcast("p", order([1]), T0)
    (final,) = of(relay.on_local_result(7, [1], OK, T0), SendReply)
    assert final.reply.trace is None


def test_a_trace_is_bounded_and_its_levels_are_complete() -> None:
    nodes = range(6000)
    rng = random.Random(2)
    dead = set(rng.sample(nodes, 300))
    net = Network({node: node + 1 for node in nodes}, Faults(silent=dead), seed=1)
    net.broadcast(nodes, 8, grouping="balanced", traced=True)
    net.run()
    trace = net.answers[0].trace
    assert trace is not None
    assert len(trace.spans) == 2_048
    assert sum(level.sends for level in trace.levels) == net.sent["broadcast"]
    assert trace.omitted == net.sent["broadcast"] - 2_048
    assert {one.child for one in trace.spans if one.how == "adopted: no acknowledgement"} == dead


def name_of(number: int) -> str:
    return f"cn{number}" if number >= 0 else f"sat{-number}"


def test_a_tree_as_text_shows_trouble_first_and_folds_the_rest() -> None:
    quiet = [span(node, 100 + node, parent=2, hop=3) for node in range(10, 30)]
    spans = [
        TraceSpan(ROOT, -1, 1, 25, 1_500, 2_000_000, "done"),
        TraceSpan(-1, 2, 2, 21, 40, 1_234, "done"),
        TraceSpan(-1, 3, 2, 3, NEVER_US, NEVER_US, "adopted: no acknowledgement"),
        TraceSpan(-1, 4, 2, 1, 50, 60, "done"),
        TraceSpan(2, 5, 3, 1, 0, 0, "local"),
        *quiet,
        TraceSpan(77, 78, 5, 1, 1, 2, "done"),
    ]
    assert render(Trace(tuple(spans), from_spans(spans).levels, 3), name_of).splitlines() == [
        "LEVEL    LISTS  ADOPTED   ACK MEAN    ACK MAX   DONE MAX",
        "    1        1        0     1.5 ms     1.5 ms     2.00 s",
        "    2        3        1      30 us      50 us     1.2 ms",
        "    3       20        0       5 us       5 us     129 us",
        "    5        1        0       1 us       1 us       2 us",
        "",
        "controller",
        "  sat1  25 nodes, ack 1.5 ms, done 2.00 s",
        "    cn2  21 nodes, ack 40 us, done 1.2 ms",
        "      20 lists done: cn29, cn28, cn27 and 17 more; slowest ack 5 us, done 129 us",
        "      cn5  1 node, in the same process",
        "    ! cn3  3 nodes, ack never, done never, adopted: no acknowledgement",
        "    cn4  1 node, ack 50 us, done 60 us",
        "cn77 (how it got its list was left out)",
        "  cn78  1 node, ack 1 us, done 2 us",
        "3 more lists are counted above but not shown: they were the fastest.",
    ]


def test_many_branches_are_folded_and_a_circle_does_not_matter() -> None:
    branches = [span(node, 100 - node) for node in range(20)]
    below = [span(100 + node, parent=node, hop=2) for node in range(20)]
    below[19] = span(119, NEVER_US, "adopted: link lost", parent=19, hop=2)
    back = [span(0, parent=100, hop=3)]
    lines = render(from_spans([*branches, *below, *back]), name_of).splitlines()
    first = lines.index("controller") + 1
    # The fastest branch comes first because of the suspect below it.
    assert lines[first] == "  cn19  1 node, ack 5 us, done 81 us"
    assert lines[first + 1].startswith("    ! cn119 ")
    folded = 20 - BRANCHES_SHOWN
    assert lines[-1].startswith(
        f"  {folded} branches, {folded} nodes with 0 suspects: cn7, cn8, cn9 and 9 more"
    )
