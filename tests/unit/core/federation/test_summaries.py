"""The times at which a summary is written, and its figures of the nodes."""

from __future__ import annotations

import random

import msgspec
import pytest

from eslurm.core.federation.membership import Standing
from eslurm.core.federation.summaries import (
    CHANGE_PERCENT,
    HORIZON_S,
    READ_US_PER_NODE,
    WRITE_US,
    NodeClasses,
)
from eslurm.core.federation.values import VALUE_BYTES_MAX, Reader, encode
from eslurm.core.model.config import Module, NodeConfig, Partition, Resource
from eslurm.core.model.federation import CLASSES_MAX, NodeClass, Summary
from eslurm.core.model.messages import ConfigLoaded, UpdateNodes
from eslurm.core.model.request import Request
from eslurm.core.plan.profile.profile import ResourceProfile
from eslurm.core.state.view import View
from eslurm.lab.kv.image import KvImage
from tests.kits.core import ROOT, SECOND, World
from tests.kits.federation import KEYS, LEASE_S, Controller, Network, put, remove, summary

KEY = f"{KEYS.summary}alpha"


def member(shows: Summary) -> tuple[Network, Controller]:
    one = Controller("alpha")
    one.shows = shows
    net = Network(KvImage(), random.Random(1))
    net.faults = 0.0
    net.controllers.append(one)
    net.settle(3)
    assert one.membership.standing is Standing.MEMBER
    return net, one


def written(net: Network) -> Summary:
    entry = net.image.get(KEY).entry
    assert entry is not None and entry.lease
    read = Reader(Summary, KEYS.summary).read_entry(entry)
    assert isinstance(read, Summary), read
    return read


def writes(net: Network) -> int:
    return sum(1 for _, action in net.made if any(write.key == KEY for write in action.then))


def test_it_is_written_once_and_again_when_others_may_take_it_for_old() -> None:
    net, _ = member(summary(2))
    first = written(net)
    assert (first.epoch, first.seq) == (1, 1)
    assert first.classes == summary(2).classes
    net.settle(WRITE_US / 1e6 - 4)
    assert writes(net) == 1
    net.settle(3)
    assert writes(net) == 2 and written(net).seq == 2


@pytest.mark.parametrize(
    ("before", "after", "is_shown"),
    [
        (summary(50, 100), summary(50 + CHANGE_PERCENT, 100), False),
        (summary(50, 100), summary(50 + CHANGE_PERCENT + 1, 100), True),
        (summary(1, 100), summary(0, 100), True),
        (summary(0, 100), summary(1, 100), True),
        (summary(5, 100), summary(5, 101), True),
        (summary(5, 100), msgspec.structs.replace(summary(5, 100), classes=()), True),
        (summary(5, 100), msgspec.structs.replace(summary(5, 100), waiting_jobs=3), False),
    ],
)
def test_a_change_that_matters_is_shown_soon(before: Summary, after: Summary, *, is_shown: bool) -> None:
    net, one = member(before)
    one.shows = after
    net.settle(1)
    assert (writes(net) == 2) is is_shown
    assert (written(net).classes == after.classes) is (is_shown or before.classes == after.classes)


def test_writes_and_readings_keep_their_distance() -> None:
    net, one = member(summary(1, 4))
    before = writes(net)
    for second in range(40):
        one.shows = summary(second % 2 * 4, 4)
        net.settle(0.05)
    assert writes(net) - before <= 40 * 0.25 / 0.2 + 1
    one.summaries.show(summary(1, 20_000), net.now_us)
    assert not one.summaries.wants(net.now_us + 20_000 * READ_US_PER_NODE - 1)
    assert one.summaries.wants(net.now_us + 20_000 * READ_US_PER_NODE)


def test_it_is_written_again_when_it_was_lost_or_the_lease_is_another() -> None:
    net, one = member(summary(2))
    remove(net.image, KEY)
    net.settle(1)
    assert written(net).seq == 2
    net.image.revoke(one.membership.lease)
    net.settle(5)
    entry = net.image.get(KEY).entry
    assert entry is not None and entry.lease == one.membership.lease


def test_a_forged_summary_is_written_over() -> None:
    net, _ = member(summary(2))
    put(net.image, KEY, b"\xc1")
    net.settle(WRITE_US / 1e6 + 1)
    assert written(net).classes == summary(2).classes


def test_a_former_leader_writes_no_summary() -> None:
    net, one = member(summary(2))
    newer = Controller("alpha", 2)
    net.controllers, net.watches = [newer], []
    net.settle(LEASE_S + 2)
    assert written(net).epoch == 2
    # It still believes that it is a member, and has a lease: the swap tells.
    one.summaries.show(summary(0), net.now_us)
    one.membership.standing = Standing.MEMBER
    one.membership.lease = net.image.grant(3_600_000_000, net.now_us).lease
    one.membership._answers.clear()
    tries = 0
    for number in range(5):
        asked = one.summaries.tick(net.now_us + WRITE_US + number * 1_000_000, 0.0)
        if asked is not None:
            tries += 1
            net._make(one, asked)(net.now_us)
    assert written(net).epoch == 2
    assert tries <= 1


def test_too_much_to_say_is_cut() -> None:
    words = tuple(f"{number:03d}" + "x" * 200 for number in range(250))
    crowd = tuple(NodeClass(8, 1, partitions=words, total=number + 1) for number in range(CLASSES_MAX))
    shows = msgspec.structs.replace(summary(), classes=crowd, horizon=((60, (1,) * CLASSES_MAX),))
    net, one = member(shows)
    shown = written(net)
    assert len(shown.classes) == CLASSES_MAX and not shown.classes[0].partitions
    assert not shown.horizon
    entry = net.image.get(KEY).entry
    assert entry is not None and len(entry.value) <= VALUE_BYTES_MAX
    assert one.summaries.problem == ""


NAMES = tuple(f"cn{number}" for number in range(7))


def world() -> World:
    """Four plain nodes, two with devices, one gateway."""
    nodes = [NodeConfig(name, (8, 64_000, 0)) for name in NAMES[:4]]
    nodes += [NodeConfig(name, (16, 60_000, 4), ("fast",)) for name in NAMES[4:6]]
    nodes.append(NodeConfig(NAMES[6], (2, 1_000, 0), module="gw"))
    return World(
        7,
        nodes_with=tuple(nodes),
        partitions=(
            Partition("all", NAMES[:6], default=True),
            Partition("gpu", NAMES[4:6]),
            Partition("gateways", NAMES[6:], role="gateway"),
        ),
        resources=(Resource("gpu", devices=True),),
        modules=(Module("gw", "gateway"),),
    )


def test_classes_are_what_nodes_offer_and_gateways_are_hidden() -> None:
    one = world()
    view = View(one.state)
    read = NodeClasses(view).read(view, 77)
    assert read.classes == (
        NodeClass(8, 64_000, (), (), ("all",), 4, 4, 32),
        NodeClass(16, 60_000, (("gpu", 4),), ("fast",), ("all", "gpu"), 2, 2, 32),
    )
    assert (read.at_us, read.revision, read.epoch) == (77, view.revision, view.epoch)


def test_busy_and_unusable_nodes_are_not_free() -> None:
    one = world()
    one.submit(request=Request(cpus_per_task=3, include=("cn0",)))
    waiting = one.submit(request=Request(tasks=6, nodes_min=6, nodes_max=6, exclusive=True))
    placed = one.plan()
    one.send(UpdateNodes(ROOT, ("cn3",), "drain", "test"))
    view = View(one.state)
    plain, fast = NodeClasses(view).read(view, 0).classes
    assert waiting not in placed and len(placed) == 1
    assert (plain.total, plain.free, plain.cores_free) == (4, 2, 8 * 3 - 3)
    assert (fast.total, fast.free) == (2, 2)
    read = NodeClasses(view).read(view, 0)
    assert (read.waiting_jobs, read.running_jobs) == (view.pending_count, view.active_count)


def test_classes_are_those_of_one_configuration() -> None:
    one = world()
    view = View(one.state)
    classes = NodeClasses(view)
    assert classes.is_of(view)
    one.send(ConfigLoaded(msgspec.structs.replace(one.state.config, policy="fcfs")))
    assert not classes.is_of(View(one.state))


def test_too_many_kinds_become_one_that_says_what_each_has_at_least() -> None:
    amounts = [(8, 9_000), (8, 9_000), (7, 9_000), (7, 9_000), (3, 6_000), (4, 5_000), (5, 7_000)]
    one = World(7, nodes_with=tuple(NodeConfig(f"cn{number}", total) for number, total in enumerate(amounts)))
    view = View(one.state)
    classes = NodeClasses(view, most=3).read(view, 0).classes
    assert [known.total for known in classes] == [2, 2, 3]
    rest = classes[-1]
    assert (rest.cores, rest.memory_mib, rest.partitions) == (3, 5_000, ("main",))
    assert rest.cores_free == 9
    decoded = Reader(Summary, KEYS.summary).read(KEY, encode(NodeClasses(view, most=3).read(view, 0)))
    assert isinstance(decoded, Summary)


def test_the_horizon_is_what_the_plan_leaves_free() -> None:
    one = world()
    view = View(one.state)
    profile = ResourceProfile(view.topology, now_us=0)
    for number in one.state.nodes:
        profile.set_usable(number, True)
    number = one.state.numbers["cn0"]
    profile.book([(number, (8, 64_000, 0))], 0, 400 * SECOND)
    horizon = NodeClasses(view).horizon(profile)
    assert [after_s for after_s, _ in horizon] == list(HORIZON_S)
    assert [free for _, free in horizon] == [(3, 2), (3, 2), (4, 2), (4, 2), (4, 2), (4, 2), (4, 2)]
