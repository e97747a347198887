"""A request written as words of `esctl update` reads back as the same request; so does the command that changes it."""

from __future__ import annotations

import shlex

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from escli.admin.overlay import RESOURCES, changed_resources
from eslurm.api.requests import SpecReader
from eslurm.compat.errors import OptionError
from eslurm.core.control.jobs.comparing import asks_for_more
from eslurm.core.model.config import ClusterConfig, Resource
from eslurm.core.model.features import evaluate
from eslurm.core.model.job import JobSpec, Principal
from eslurm.core.model.option_text import asked_words, differing, update_words
from eslurm.core.model.request import Chunk, Request
from eslurm.v1 import controller_pb2 as pb
from tests.support.profiles import draws

ALICE = Principal("alice", 1000, 1000)
CONFIG = ClusterConfig(
    "test", resources=(Resource("gpu", devices=True), Resource("fpga"), Resource("matlab", wide_total=9))
)
WORDS = st.lists(
    st.sampled_from(["gpu:a100", "ib", "!old", "rack=1", "(a|b)", "host=cn1"]), unique=True, max_size=3
)
WIDE = st.sampled_from([(), (("matlab", 2),), (("matlab", 1), ("ansys", 3))])
NODES = st.lists(st.sampled_from(["cn1", "cn2", "cn7", "gpu-3"]), unique=True, max_size=2)


@st.composite
def of_tasks(draw: st.DrawFn) -> Request:
    low = draw(st.integers(0, 4))
    high = draw(st.sampled_from([low, low + 2])) if low else 0
    each = draw(st.sampled_from([0, 0, 2]))
    least = max(1, low) * max(1, each)
    names = draw(NODES)
    tasks = draw(st.sampled_from([least, *range(max(1, low), (high * each or 9) + 1)]))
    by_task = draw(st.booleans())
    gpus = (("gpu", draw(st.integers(1, 4))),)
    per_node = draw(st.sampled_from([(), (("fpga", 1),), (("fpga", 2), *gpus), gpus]))
    has_gpus = ("gpu", gpus[0][1]) in per_node
    memory_mib = draw(st.sampled_from([0, 300, 1024, 2048]))
    by_core = draw(st.booleans())
    return Request(
        tasks=tasks,
        cpus_per_task=draw(st.integers(1, 4)),
        nodes_min=low,
        nodes_max=high,
        tasks_per_node=each,
        memory_per_node_mib=0 if by_core else memory_mib,
        memory_per_cpu_mib=memory_mib if by_core else 0,
        exclusive=draw(st.booleans()),
        include=tuple(names[: max(high, 0)] if high else names),
        exclude=("cn9",) if draw(st.booleans()) else (),
        per_node=per_node,
        per_task=gpus if by_task and not has_gpus else (),
        wide=draw(WIDE),
        constraint="&".join(draw(WORDS)),
    )


CHUNKS = st.builds(
    lambda count, cores, memory, gpus, words: Chunk(
        count, cores, memory, (("gpu", gpus),) if gpus else (), "&".join(words)
    ),
    st.integers(1, 9),
    st.integers(1, 8),
    st.sampled_from([0, 1000, 2048]),
    st.integers(0, 4),
    st.lists(st.sampled_from(["gpu:a100", "ib", "!old", "rack=1"]), unique=True, max_size=2),
)
OF_CHUNKS = st.builds(
    lambda chunks, place, exclusive, words, wide, exclude: Request(
        tasks=sum(chunk.count for chunk in chunks),
        cpus_per_task=chunks[0].cores,
        chunks=tuple(chunks),
        place=place,
        exclusive=exclusive,
        constraint="&".join(words),
        wide=wide,
        exclude=tuple(exclude),
    ),
    st.lists(CHUNKS, min_size=1, max_size=3),
    st.sampled_from(["free", "pack", "scatter"]),
    st.booleans(),
    WORDS,
    WIDE,
    NODES,
)
REQUESTS = st.one_of(of_tasks(), OF_CHUNKS)


def spec_of(request: Request, time_limit_s: int = 600) -> JobSpec:
    return JobSpec("x", ALICE, "main", (request,), b"s", b"e", "/tmp", time_limit_s)


def read(asked: tuple[str, ...], words: str) -> Request:
    """As the command and the controller read it."""
    pairs = [word.partition("=") for word in shlex.split(words)]
    part = pb.ResourceRequest(**changed_resources(asked, {key: (value, key) for key, _, value in pairs}))
    job = pb.JobRequest(components=[part], script=b"#!/bin/sh\n", work_dir="/")
    return SpecReader(ALICE, CONFIG).read(job).components[0]


def where_true(constraint: str) -> int:
    """On which of all the ways to have the features or not."""
    words = ("gpu:a100", "ib", "old", "rack=1", "a", "b", "host=cn1")
    having = {
        word: sum(1 << way for way in range(1 << len(words)) if way >> at & 1)
        for at, word in enumerate(words)
    }
    everything = (1 << (1 << len(words))) - 1
    return evaluate(constraint, having.__getitem__, everything) if constraint else everything


def meaning(request: Request) -> dict[str, object]:
    """The meaning of a request, free of the order of its words; of an expression, the sets in which it is true."""
    plain = asdict(request)
    for name in ("include", "exclude", "per_node", "per_task", "wide"):
        plain[name] = frozenset(plain[name])
    plain["constraint"] = where_true(request.constraint)
    plain["chunks"] = [
        (one.count, one.cores, one.memory_mib, one.resources, where_true(one.constraint))
        for one in request.chunks
    ]
    return plain


@settings(max_examples=draws(60), deadline=None)
@given(REQUESTS)
def test_what_a_job_asks_for_is_read_back(request: Request) -> None:
    again = read(asked_words(request), "")
    assert meaning(again) == meaning(request)
    # Whoever asks for the same is told the same, however it was said.
    assert asked_words(read(asked_words(again), "")) == asked_words(again)


@settings(max_examples=draws(60), deadline=None)
@given(REQUESTS, REQUESTS)
def test_one_job_becomes_another_by_the_words_that_say_so(old: Request, new: Request) -> None:
    words = update_words(spec_of(old), spec_of(new))
    assert meaning(read(asked_words(old), words)) == meaning(new), words
    assert bool(words) is bool(differing(old, new))


SCRAPS = st.sampled_from(
    [
        "2",
        "2147483647",
        "99999999999",
        "-1",
        "1-",
        "gpu:2",
        "a100:1",
        "8:ncpus=2",
        "place=pack",
        "cn[1-",
        "yes",
        "4T",
        "\udcff",
    ]
)
VALUES = st.one_of(st.lists(SCRAPS, max_size=3).map("".join), st.text(max_size=8))


@settings(max_examples=draws(200), deadline=None)
@given(REQUESTS, st.dictionaries(st.sampled_from(sorted(set(RESOURCES.values()))), VALUES, max_size=3))
def test_whatever_is_said_is_sent_or_refused(old: Request, said: dict[str, str]) -> None:
    try:
        found = changed_resources(asked_words(old), {key: (value, key) for key, value in said.items()})
    except OptionError as error:
        assert "\n" not in str(error)
    else:
        pb.ResourceRequest(**found)


@settings(max_examples=draws(60), deadline=None)
@given(REQUESTS, st.data())
def test_less_is_not_called_more(old: Request, data: st.DataObject) -> None:
    spec = spec_of(old)
    assert not asks_for_more(spec, spec)
    new = replace(spec, time_limit_s=data.draw(st.sampled_from([600, 60])))
    if old.chunks:
        less = tuple([replace(one, count=max(1, one.count - 1)) for one in old.chunks])
        request = replace(old, chunks=less, exclusive=False, constraint="")
    else:
        request = replace(old, cpus_per_task=1, wide=(), include=(), exclusive=False)
    assert not asks_for_more(spec, replace(new, components=(request,)))
    more = replace(old, wide=(("matlab", 5), ("ansys", 5)))
    assume(more != old)
    assert asks_for_more(spec, replace(new, components=(more,)))
    assert asks_for_more(spec, replace(spec, time_limit_s=601))
    assert asks_for_more(spec, replace(spec, time_limit_s=0))
