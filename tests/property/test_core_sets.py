"""Cores of jobs against a naive model: all subsets of the sockets and NUMA nodes of a small host."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from esnoded.stepd.core_sets import CoreSets, choose_cores
from esnoded.topology import Core

HOSTS = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=4)
"""The numbers of cores of each NUMA node of each socket."""


def host(sizes: list[list[int]]) -> list[Core]:
    """Its cores, two CPUs each; the numbers of the second ones follow those of all first ones."""
    total = sum(map(sum, sizes))
    places = [
        (socket, domain)
        for socket, domains in enumerate(sizes)
        for domain, count in enumerate(domains)
        for _ in range(count)
    ]
    return [Core((n, n + total), socket, 10 * socket + domain) for n, (socket, domain) in enumerate(places)]


def fewest(free: list[Core], count: int) -> tuple[int, int]:
    """The smallest numbers of sockets and, where one is enough, of NUMA nodes of one socket that have so many cores."""
    by_socket = Counter(core.socket for core in free)
    sockets = next(
        size
        for size in range(1, len(by_socket) + 1)
        if any(sum(by_socket[one] for one in some) >= count for some in combinations(by_socket, size))
    )
    domains = []
    for socket in by_socket:
        sizes = Counter(core.domain for core in free if core.socket == socket)
        domains += [
            size
            for size in range(1, len(sizes) + 1)
            if any(sum(sizes[one] for one in some) >= count for some in combinations(sizes, size))
        ]
    return sockets, min(domains, default=0)


@given(HOSTS, st.data())
def test_a_choice_has_the_right_number_and_is_as_compact_as_can_be(
    sizes: list[list[int]], data: st.DataObject
) -> None:
    cores = host(sizes)
    free = data.draw(st.lists(st.sampled_from(cores), unique=True))
    count = data.draw(st.integers(0, len(cores) + 1))
    chosen = choose_cores(free, count)
    if not 0 < count <= len(free):
        assert chosen == ()
        return
    assert len(set(chosen)) == len(chosen) == count and set(chosen) <= set(free)
    sockets, domains = fewest(free, count)
    assert len({core.socket for core in chosen}) == sockets
    if sockets == 1:
        assert len({core.domain for core in chosen}) == domains


@given(HOSTS, st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8)), max_size=40))
def test_no_core_is_of_two_jobs(sizes: list[list[int]], steps: list[tuple[int, int]]) -> None:
    """A job that has cores gives them back; one that has none takes some."""
    cores = host(sizes)
    sets = CoreSets(cores)
    held: dict[str, tuple[Core, ...]] = {}
    for job, count in steps:
        group = f"job_{job}"
        if group in held:
            sets.give_back(group)
            del held[group]
        elif chosen := sets.take(group, count):
            assert len(chosen) == count
            held[group] = chosen
        else:
            assert not 0 < count <= len(cores) - sum(map(len, held.values()))
            sets.give_back(group)
        used = Counter(core for chosen in held.values() for core in chosen)
        assert not used or max(used.values()) == 1
        assert sets.free == len(cores) - len(used)
