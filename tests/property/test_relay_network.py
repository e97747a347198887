"""Whole trees of relays under faults, hundreds of seeds: who acted, and what the root was told.

Goal: with nothing lost, every live node acts exactly once and is reported truly, every dead one is
unreached, whatever the tree, the hosting and the deaths. With loss, doubling and reordering, nothing
acts twice and no answer is wrong; unreached is then allowed. A failure names its seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from eslurm.core.relay.grouping import shape, split
from eslurm.core.relay.messages import Leg, Tuning
from eslurm.core.relay.results import Status
from tests.kits.relay_network import Faults, Network, some_fail
from tests.support.profiles import draws

SECOND = 1_000_000
SEEDS_PER_CASE = draws(25)
CASES = 10


def seeds(case: int) -> Iterable[int]:
    return range(case * SEEDS_PER_CASE, (case + 1) * SEEDS_PER_CASE)


def hosting(rng: random.Random) -> dict[int, int]:
    """1 to 300 nodes in a strange order over 1 to 20 processes, or one process per node."""
    count = rng.randint(1, 300)
    nodes = rng.sample(range(1000), count)
    processes = rng.choice([1, 2, 5, 20, count, count])
    if processes == count:
        return {node: index + 1 for index, node in enumerate(nodes)}
    return {node: rng.randint(1, processes) for node in nodes}


def play(net: Network, nodes: Iterable[int], rng: random.Random, deadline_us: int = 60 * SECOND) -> None:
    net.outcome_of = some_fail
    net.broadcast(list(nodes), rng.choice([2, 3, 5, 8, 32]), deadline_us)
    net.run(after_us=5 * SECOND)


def check_truth(net: Network, nodes: Iterable[int], story: str) -> None:
    """No node acted twice and no answer is wrong; unreached is allowed."""
    final = net.final()
    assert final.keys() == set(nodes), story
    for node, outcome in final.items():
        assert net.acted[node] <= 1, (story, node)
        if outcome.status is not Status.UNREACHED:
            assert outcome == some_fail(node), (story, node)
            assert net.acted[node] == 1, (story, node)


def check_exact(net: Network, nodes: Iterable[int], story: str) -> None:
    """Live nodes acted once and are reported; dead ones did not act and are unreached."""
    check_truth(net, nodes, story)
    dead = net.faults.refused | net.faults.silent
    for node, outcome in net.final().items():
        if node in dead:
            assert net.acted[node] == 0, (story, node)
        elif net.process_of[node] not in net.dead_processes:
            assert outcome.status is not Status.UNREACHED, (story, node, outcome)


def check_order(net: Network, nodes: list[int], story: str) -> None:
    """Every list on the wire is the original one with nodes left out (X-02)."""
    position = {node: index for index, node in enumerate(nodes)}
    for sub_list in net.lists:
        places = [position[node] for node in sub_list]
        assert places == sorted(places), (story, sub_list)


def check_at_rest(net: Network, story: str) -> None:
    """Nothing is left behind: no live broadcast, no slot in use, no queue."""
    for process, relay in net.relays.items():
        if process not in net.dead_processes:
            left = (relay.live, relay.unacknowledged, relay.queued)
            assert left == (0, 0, 0), (story, process, left)


@pytest.mark.parametrize("case", range(CASES))
def test_dead_nodes_are_found_and_live_ones_act_exactly_once(case: int) -> None:
    for seed in seeds(case):
        rng = random.Random(seed)
        process_of = hosting(rng)
        ratio = rng.choice([0, 0.05, 0.3, 0.9])
        dead = [node for node in process_of if rng.random() < ratio]
        faults = Faults(set(dead[::2]), set(dead[1::2]), run_max_us=rng.choice([0, 50_000, 4 * SECOND]))
        net = Network(process_of, faults, seed)
        play(net, process_of, rng)
        story = f"seed {seed}: {len(process_of)} nodes, {len(dead)} dead"
        check_exact(net, process_of, story)
        check_order(net, list(process_of), story)
        check_at_rest(net, story)
        assert len(net.answers) == 1, story


@pytest.mark.parametrize("case", range(CASES))
def test_processes_that_die_after_acknowledging_cost_nobody_else(case: int) -> None:
    for seed in seeds(case):
        rng = random.Random(seed)
        process_of = hosting(rng)
        dead = [node for node in process_of if rng.random() < rng.choice([0, 0.05, 0.3])]
        faults = Faults(set(dead[::2]), set(dead[1::2]), dying_breaks_link=seed % 2 == 0)
        ratio = rng.choice([0.02, 0.1])
        faults.dying = {node for node in process_of if node not in dead and rng.random() < ratio}
        faults.run_max_us = rng.choice([0, 50_000, 4 * SECOND])
        net = Network(process_of, faults, seed)
        play(net, process_of, rng)
        story = f"seed {seed}: {len(process_of)} nodes, {len(dead)} dead, {len(faults.dying)} dying"
        check_exact(net, process_of, story)
        check_order(net, list(process_of), story)
        assert net.finished_us is not None
        assert net.finished_us < 30 * SECOND, story


@pytest.mark.parametrize("case", range(CASES))
def test_a_bad_network_makes_nodes_unreached_but_never_wrong_or_twice(case: int) -> None:
    for seed in seeds(case):
        rng = random.Random(seed)
        process_of = hosting(rng)
        faults = Faults(
            loss=rng.choice([0, 0.02, 0.2]),
            duplication=rng.choice([0, 0.1, 0.5]),
            delay_max_us=rng.choice([20_000, 400_000, 3 * SECOND]),
        )
        net = Network(process_of, faults, seed)
        net.outcome_of = some_fail
        net.broadcast(list(process_of), rng.choice([2, 3, 8, 32]), 20 * SECOND)
        net.run(after_us=30 * SECOND)
        story = f"seed {seed}: {len(process_of)} nodes, {faults}"
        check_truth(net, process_of, story)
        check_at_rest(net, story)
        assert net.finished_us is not None
        assert net.finished_us <= 21 * SECOND, story
        if faults.loss == 0 and faults.delay_max_us == 20_000:
            check_exact(net, process_of, story)


def test_a_tight_cap_changes_the_pace_and_nothing_else() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        process_of = hosting(rng)
        dead = {node for node in process_of if rng.random() < 0.1}
        net = Network(process_of, Faults(silent=dead), seed, Tuning(max_unacknowledged=2))
        play(net, process_of, rng)
        check_exact(net, process_of, f"seed {seed}")
        check_at_rest(net, f"seed {seed}")


def test_satellites_that_die_are_taken_over_by_the_controller() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        process_of = hosting(rng)
        satellites = [5001, 5002, 5003]
        dead = {node for node in process_of if rng.random() < 0.1}
        lost = rng.sample(satellites, rng.randint(0, 3))
        faults = Faults(silent=dead | set(lost[:1]), refused=set(lost[1:2]), dying=set(lost[2:]))
        net = Network(process_of, faults, seed, satellites=satellites)
        shares = split(list(process_of), len(satellites))
        legs = [Leg(to, tuple(share)) for to, share in zip(satellites, shares, strict=False)]
        net.outcome_of = some_fail
        net.broadcast(list(process_of), 8, legs=legs)
        net.run(after_us=5 * SECOND)
        check_exact(net, process_of, f"seed {seed}: lost {lost}")
        check_order(net, list(process_of), f"seed {seed}")


def test_a_healthy_run_is_the_positional_tree_edge_by_edge() -> None:
    """Simulated tree == the parent/child log of a run (E-21)."""
    nodes = random.Random(5).sample(range(10_000), 700)
    process_of = {node: index + 1 for index, node in enumerate(nodes)}
    net = Network(process_of, Faults())
    log: set[tuple[int | None, int]] = set()
    node_of = {process: node for node, process in process_of.items()}
    perform = net._send_broadcast

    def note(process: int, action) -> None:
        log.add((node_of.get(process), action.to_node))
        perform(process, action)

    net._send_broadcast = note  # type: ignore[method-assign]
    net.broadcast(nodes, 6)
    net.run()
    assert log == set(shape(nodes, 6))
    assert dict(net.sent) == {"broadcast": 700, "ack": 700, "reply": 700}


@pytest.mark.parametrize(
    ("processes", "dead_ratio", "broadcasts_max", "messages_max", "time_max_s"),
    [
        (8, 0.0, 1.0, 2.3, 0.3),
        (4096, 0.0, 1.0, 3.0, 0.3),
        (8, 0.3, 1.5, 2.5, 2.0),
        (4096, 0.3, 1.5, 3.2, 2.0),
    ],
)
def test_4096_nodes_cost_few_messages_and_little_time(
    processes: int, dead_ratio: float, broadcasts_max: float, messages_max: float, time_max_s: float
) -> None:
    rng = random.Random(1)
    nodes = range(4096)
    spread = {node: node + 1 if processes == 4096 else rng.randint(1, processes) for node in nodes}
    dead = {node for node in nodes if rng.random() < dead_ratio}
    net = Network(spread, Faults(silent=dead), seed=1)
    net.outcome_of = some_fail
    net.broadcast(nodes, 32)
    net.run()
    check_exact(net, nodes, "4096 nodes")
    assert net.sent["broadcast"] <= broadcasts_max * len(nodes)
    assert net.sent.total() <= messages_max * len(nodes)
    assert net.finished_us is not None
    assert net.finished_us - SECOND <= time_max_s * SECOND
