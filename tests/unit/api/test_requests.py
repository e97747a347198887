"""Malformed requests are refused at the door, each with the option, the value and the way out."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from escli.option_table import rows_of
from escli.options import Parser
from escli.user.draft import SubmitContext, draft_job
from eslurm.api import requests
from eslurm.api.requests import BlobCollector, SpecReader
from eslurm.compat.errors import OptionError
from eslurm.core.model.config import ClusterConfig, Partition, Resource
from eslurm.core.model.job import ArraySpec, Dependency, JobSpec, Principal
from eslurm.core.model.job_weight import weight
from eslurm.core.model.messages import CreateStep, Refused, StepProgram
from eslurm.core.model.pack import PackDraft
from eslurm.core.model.request import Chunk, PartSpec, Request
from eslurm.core.model.request_limits import PARTS_MAX
from eslurm.core.model.step_input import StepInput
from eslurm.ports.store import content_hash
from eslurm.v1 import controller_pb2 as pb

ALICE = Principal("alice", 1000, 1000)
CONFIG = ClusterConfig(
    "test",
    script_bytes_max=1000,
    array_tasks_max=100,
    partitions=(Partition("main", (), default=True),),
    resources=(Resource("gpu", devices=True), Resource("vmem"), Resource("matlab", wide_total=9)),
)


def job(**fields: object) -> pb.JobRequest:
    given: dict[str, object] = {"script": b"#!/bin/sh\ntrue\n", "work_dir": "/tmp", **fields}
    return pb.JobRequest(**given)  # type: ignore[arg-type]


def read(**fields: object):  # type: ignore[no-untyped-def]
    return SpecReader(ALICE, CONFIG).read(job(**fields))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"script": b""}, "script: it is empty"),
        ({"script": b"\x7fELF\0\0"}, "binary"),
        ({"script": b"echo hello\n"}, "interpreter"),
        ({"script": b"#!/bin/sh\n" + b"#" * 1000}, "1010 bytes are more than 1000"),
        ({"work_dir": "relative/dir"}, "--chdir: 'relative/dir'"),
        ({"name": "x" * 300}, "is longer than 256 characters: use a short text on one line"),
        ({"name": "a\x1b[31mb"}, "--job-name: 'a\\x1b[31mb' holds control characters"),
        ({"account": "a\rb"}, "--account: 'a\\rb' holds control characters"),
        ({"comment": "x" * 1025}, "is longer than 1024 characters"),
        ({"partition": "x" * 64}, "is longer than 63 characters"),
        ({"output": "a\0b"}, "--output: 'a\\x00b' contains a NUL"),
        ({"warn_script": "/" + "x" * 4096}, "is longer than 4096 characters"),
        ({"work_dir": "/" + "x" * 4096}, "is longer than 4096 characters"),
        (
            {"arguments": ["x" * 100_000] * 40},
            "and the rest are longer than 262144 bytes: pass them in a file",
        ),
        ({"arguments": ["x" * 131_072]}, "is longer than 131071 bytes"),
        ({"arguments": ["x"] * 20_000}, "and the rest are 20000, more than 16384"),
        ({"arguments": ["a\0b"]}, "argument: 'a\\x00b' contains a NUL character"),
        ({"environment": b"x" * (2 * 1024 * 1024 + 1)}, "--export: the environment has 2097153 bytes"),
        (
            {"components": [pb.ResourceRequest(include=["n"] * 70_000)]},
            "--nodelist: 'n' and the rest are 70000 nodes, more than 32768",
        ),
        ({"components": [pb.ResourceRequest(exclude=["n\n"])]}, "--exclude: 'n\\n' holds control"),
        ({"components": [pb.ResourceRequest()] * 129}, "a job of 129 parts: at most 128 are possible"),
        ({"array": [pb.TaskRange(first=0, last=0)] * 10_001}, "--array: 10001 parts are more than 10000"),
        ({"warn_script": "/a\0"}, "--warn-script: '/a\\x00' contains a NUL"),
        ({"warn_signal": 999}, "--signal: 999 is not a signal: give 1 to 64"),
        ({"warn_signal": -9}, "--signal: -9 is not a signal"),
        ({"umask": 0o1000}, "--umask: 0o1000 is not a umask: give 0 to 0o777"),
        ({"components": [pb.ResourceRequest(nodes_min=4, nodes_max=2)]}, "--nodes: the maximum 2"),
        ({"components": [pb.ResourceRequest(nodes_min=4, tasks=2)]}, "--ntasks: 2 tasks"),
        (
            {"components": [pb.ResourceRequest(memory_per_node_mib=1, memory_per_cpu_mib=1)]},
            "--mem and --mem-per-cpu exclude each other",
        ),
        (
            {"components": [pb.ResourceRequest(constraint="a&&b")]},
            "--constraint: 'a&&b' a feature is missing",
        ),
        ({"components": [pb.ResourceRequest(place="near")]}, "--rset: 'near' is no placement"),
        (
            {"components": [pb.ResourceRequest(per_node=[pb.ResourceAmount(name="gpu")])]},
            "--gres: 0 of gpu: ask for 1 to 2147483647",
        ),
        (
            {"components": [pb.ResourceRequest(wide=[pb.ResourceAmount(name="m", items=2**40)])]},
            "--licenses: 1099511627776 of m",
        ),
        (
            {"components": [pb.ResourceRequest(chunks=[pb.Chunk(count=1)] * 9)]},
            "--rset: 9 kinds of chunks are more than 8",
        ),
        (
            {"components": [pb.ResourceRequest(chunks=[pb.Chunk(constraint="vmem=lots")])]},
            "--rset: 'vmem=lots' is not an amount",
        ),
        (
            {"components": [pb.ResourceRequest(chunks=[pb.Chunk()], constraint="vmem=4")]},
            "--rset: vmem belongs to nodes, not to the whole job",
        ),
        ({"array": [pb.TaskRange(first=5, last=3)]}, "--array: the range 5-3 runs backwards"),
        ({"array": [pb.TaskRange(first=0, last=4_000_000_000, step=1)]}, "--array: more than 100 tasks"),
        ({"script": b"", "script_hash": b"x" * 32}, "no earlier job of this call"),
        ({"environment_hash": b"x" * 32}, "no earlier job of this call"),
    ],
)
def test_bad_requests_are_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(Refused) as refusal:
        read(**fields)
    assert said in refusal.value.text
    assert "\n" not in refusal.value.text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "a\0b"}, "name: 'a\\x00b' holds control"),
        ({"name": "x" * 300}, "is longer than 256 characters"),
        ({"partition": "a\0b"}, "partition: 'a\\x00b' holds control"),
        ({"partition": "x" * 64}, "is longer than 63 characters"),
        ({"comment": "a\0b"}, "comment: 'a\\x00b' holds control"),
        ({"comment": "x" * 5000}, "is longer than 1024 characters"),
    ],
)
def test_what_submitting_refuses_changing_refuses_too(fields: dict[str, str], said: str) -> None:
    """A value that no database takes would end one controller after the other."""
    request = pb.UpdateJobRequest(job=pb.JobRef(job_id=1), **fields)  # type: ignore[arg-type]
    with pytest.raises(Refused) as refusal:
        requests.update_job(request, ALICE, CONFIG)
    assert said in refusal.value.text


def test_changing_a_job_says_what_was_given_and_nothing_else() -> None:
    request = pb.UpdateJobRequest(job=pb.JobRef(job_id=1), name="n" * 256, comment="")
    update = requests.update_job(request, ALICE, CONFIG)
    assert (update.name, update.comment, update.partition) == ("n" * 256, "", None)


def test_what_a_job_is_to_need_is_read_as_a_submission_is() -> None:
    """Words find their meaning by the site's resources, and what contradicts itself is refused in the same words."""
    part = pb.ResourceRequest(chunks=[pb.Chunk(count=2, constraint="vmem=4&ib")], constraint="matlab=3")
    request = pb.UpdateJobRequest(job=pb.JobRef(job_id=1), request=part, was=["nodes=2"])
    update = requests.update_job(request, ALICE, CONFIG)
    assert (update.request,) == read(components=[part]).components
    assert update.request is not None and update.request.wide == (("matlab", 3),)
    assert update.was == ("nodes=2",)
    wrong = pb.UpdateJobRequest(request=pb.ResourceRequest(nodes_min=4, tasks=2))
    with pytest.raises(Refused, match="--ntasks: 2 tasks cannot be spread over 4 nodes"):
        requests.update_job(wrong, ALICE, CONFIG)


def test_a_job_of_too_many_parts_is_refused() -> None:
    with pytest.raises(Refused, match="a job of 129 parts: at most 128 are possible, submit several jobs"):
        read(components=[pb.ResourceRequest(tasks=1)] * 129)


def test_the_parts_of_one_call_are_bounded() -> None:
    """All of them are looked at together, in one decision."""
    reader = SpecReader(ALICE, CONFIG)
    of_parts = job(components=[pb.ResourceRequest()] * 125)
    for _ in range(80):
        reader.read(of_parts)
    reader.read(job(components=[pb.ResourceRequest()]))
    with pytest.raises(
        Refused, match="the jobs of this call have more than 10000 parts: submit them in several calls"
    ):
        reader.read(of_parts)


def parts_of(*partitions: str, partition: str = "") -> JobSpec:
    spec = read(
        partition=partition,
        components=[pb.ResourceRequest(tasks=2 + at, partition=name) for at, name in enumerate(partitions)],
    )
    assert [one.tasks for one in spec.components] == list(range(2, 2 + len(partitions)))
    assert isinstance(spec, JobSpec)
    return spec


def test_each_part_has_its_own_request_and_partition() -> None:
    spec = parts_of("cluster", "booster")
    assert (spec.partition, spec.parts) == ("", (PartSpec("cluster"), PartSpec("booster")))
    spec = parts_of("", "")
    assert (spec.partition, spec.parts) == ("", (PartSpec(), PartSpec()))
    spec = parts_of("", "booster", partition="cluster")
    assert (spec.partition, spec.parts) == ("cluster", (PartSpec(), PartSpec("booster")))


def test_a_part_without_a_partition_leaves_it_to_the_site() -> None:
    """Goal: beside a part that names one, too; its own defaults are known at the admission alone."""
    spec = parts_of("booster", "", "")
    assert (spec.partition, spec.parts) == ("", (PartSpec("booster"), PartSpec(), PartSpec()))


def test_one_part_is_an_ordinary_job() -> None:
    spec = parts_of("booster", partition="other")
    assert (spec.partition, spec.parts) == ("booster", ())
    assert parts_of("", partition="other").partition == "other"


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (pb.ResourceRequest(nodes_min=4, tasks=2), "part 1: --ntasks: 2 tasks cannot be spread over 4 nodes"),
        (
            pb.ResourceRequest(partition="x" * 64),
            "part 1: --partition: 'x+\\.\\.\\.' is longer than 63 characters",
        ),
        (pb.ResourceRequest(constraint="a&"), "part 1: --constraint: "),
    ],
)
def test_a_refusal_names_the_part(part: pb.ResourceRequest, said: str) -> None:
    with pytest.raises(Refused, match=said):
        read(components=[pb.ResourceRequest(), part])


def test_a_job_weighs_more_with_each_part() -> None:
    plain = read(components=[pb.ResourceRequest(constraint="a" * 1000)])
    assert weight(plain) == 1, "as ever"
    assert weight(read(components=[pb.ResourceRequest()] * 2)) == 1
    assert weight(read(components=[pb.ResourceRequest()] * PARTS_MAX)) == 4
    large = [pb.ResourceRequest(chunks=[pb.Chunk(constraint="a" * 1000)] * 8, constraint="b" * 1000)]
    assert weight(read(components=large * PARTS_MAX)) == 74


def test_an_absent_field_means_the_default() -> None:
    spec = read()
    assert (spec.name, spec.time_limit_s, spec.priority, spec.requeue) == ("job", 0, None, True)
    assert spec.components[0].tasks == 1
    assert read(requeue=False, priority=0).requeue is False
    assert read(requeue=False, priority=0).priority == 0


def test_a_job_has_the_trace_of_its_call_or_the_one_it_names() -> None:
    of_call, named = b"c" * 16, "4bf92f3577b34da6a3ce929d0e0e4736"
    reader = SpecReader(ALICE, CONFIG, of_call)
    assert reader.read(job()).trace == of_call
    assert reader.read(job(traceparent=f"00-{named}-00f067aa0ba902b7-01")).trace.hex() == named
    for bad in (named, f"00-{'0' * 32}-00f067aa0ba902b7-01", "x" * 100_000):
        assert reader.read(job(traceparent=bad)).trace == of_call


def test_equal_blobs_of_one_call_are_stored_once() -> None:
    reader = SpecReader(ALICE, CONFIG)
    first = reader.read(job(environment=b"A=1\0"))
    again = reader.read(job(environment=b"A=1\0"))
    by_hash = reader.read(
        pb.JobRequest(script_hash=first.script_hash, environment_hash=first.environment_hash, work_dir="/tmp")
    )
    assert first == again == by_hash
    assert {row.hash for row in reader.blobs.rows} == {
        content_hash(b"#!/bin/sh\ntrue\n"),
        content_hash(b"A=1\0"),
    }


def test_arrays_and_dependencies_are_normalised() -> None:
    ranges = [pb.TaskRange(first=0, last=6, step=2), pb.TaskRange(first=3, last=3)]
    spec = read(array=ranges, array_limit=2, dependencies=[pb.Dependency(kind="after", job_id=7, delay_s=60)])
    assert spec.array == ArraySpec(((0, 0), (2, 4), (6, 6)), 2)
    assert spec.dependencies == (Dependency("after", 7, 60),)


def test_a_job_of_n_nodes_has_a_task_on_each() -> None:
    request = read(components=[pb.ResourceRequest(nodes_min=3)]).components[0]
    assert (request.tasks, request.nodes_min, request.nodes_max) == (3, 3, 3)


def test_words_of_chunks_find_their_meaning_in_the_configuration() -> None:
    chunks = [
        pb.Chunk(count=2, cores=4, constraint="vmem=20g&net=IB&matlab=1"),
        pb.Chunk(resources=[pb.ResourceAmount(name="gpu", items=2)]),
    ]
    part = pb.ResourceRequest(chunks=chunks, constraint="matlab=3&sw=g03", place="pack", nodes_min=7)
    (request,) = read(components=[part]).components
    assert request == Request(
        tasks=3,
        cpus_per_task=4,
        wide=(("matlab", 5),),
        constraint="sw=g03",
        chunks=(Chunk(2, 4, 0, (("vmem", 20480),), "net=IB"), Chunk(1, 1, 0, (("gpu", 2),))),
        place="pack",
    )


def test_devices_licences_and_rules_are_read() -> None:
    part = pb.ResourceRequest(
        per_node=[pb.ResourceAmount(name="gpu", items=1), pb.ResourceAmount(name="gpu", items=2)],
        per_task=[pb.ResourceAmount(name="vmem", items=5)],
        wide=[pb.ResourceAmount(name="matlab", items=1)],
        constraint=" a|b ",
    )
    spec = read(
        components=[part], qos="q", reservation="r", nice=-3, start_at_us=5, deadline_us=9, warn_signal=10
    )
    (request,) = spec.components
    assert (request.per_node, request.per_task) == ((("gpu", 3),), (("vmem", 5),))
    assert (request.wide, request.constraint, request.place) == ((("matlab", 1),), "a|b", "free")
    assert (spec.qos, spec.reservation, spec.nice, spec.start_at_us, spec.deadline_us) == ("q", "r", -3, 5, 9)
    assert spec.warn_signal == 10


def test_an_array_is_counted_before_it_is_listed() -> None:
    """Goal: a range costs nothing before it is accepted. Method: parts of two billion tasks, and a million with a step."""
    config = msgspec.structs.replace(CONFIG, array_tasks_max=1_000_000)

    def array(*parts: tuple[int, int, int]) -> JobSpec:
        ranges = [pb.TaskRange(first=first, last=last, step=step) for first, last, step in parts]
        return SpecReader(ALICE, config).read(job(array=ranges))

    with pytest.raises(Refused, match="more than 1000000 tasks"):
        array((0, 2**31, 1), (2**31 + 5, 2**32 - 1, 1))
    with pytest.raises(Refused, match="500000 tasks with a step are more than 100000"):
        array((0, 999_999, 2))
    assert array((0, 9, 1), (20, 999_000, 1)).array == ArraySpec(((0, 9), (20, 999_000)))
    assert array((0, 3, 1), (4, 8, 2), (2, 2, 1)).array == ArraySpec(((0, 4), (6, 6), (8, 8)))


def test_a_step_is_bounded_as_a_job() -> None:
    def step(**fields: object) -> CreateStep:
        given: dict[str, object] = {
            "argv": ["true"],
            "work_dir": "/tmp",
            "cookie": bytes(32),
            "endpoint": "10.1.0.5:4711",
            **fields,
        }
        return requests.create_step(pb.CreateStepRequest(**given), ALICE, BlobCollector())  # type: ignore[arg-type]

    for fields, said in (
        ({"argv": ["x" * 100_000] * 3}, "longer than 262144 bytes"),
        ({"environment": b"x" * (2 * 1024 * 1024 + 1)}, "--export: the environment has"),
        ({"work_dir": "/\0"}, "contains a NUL"),
        ({"name": "\x1b]0;"}, "holds control characters"),
        ({"cookie": bytes(65)}, "cookie: 65 bytes"),
        ({"cookie": b""}, "cookie: 0 bytes instead of 32"),
        (
            {"endpoint": "/run/dbus/system_bus_socket"},
            "endpoint: '/run/dbus/system_bus_socket' is not ADDRESS:PORT",
        ),
        ({"endpoint": "/run/s:1"}, "endpoint: '/run/s' is not a numeric address"),
        ({"endpoint": "localhost:5"}, "endpoint: 'localhost' is not a numeric address"),
        ({"endpoint": "10.1.0.5:99999"}, "port 99999 is not within"),
        ({"endpoint": "10.1.0.5\0:5"}, "is not a numeric address"),
        ({"endpoint": "x" * 300}, "is not ADDRESS:PORT"),
        ({"argv": []}, "command: it is empty"),
        ({"programs": [pb.StepProgram(argv=["a"]), pb.StepProgram()]}, "command: it is empty"),
        ({"components": range(129)}, "--het-group: 129 parts are more than the 128"),
        ({"programs": [pb.StepProgram(argv=["a"])] * 129}, "--het-group: 129 parts are more than the 128"),
        ({"programs": [pb.StepProgram(argv=["x" * 100_000])] * 3}, "longer than 262144 bytes"),
        ({"argv": ["x" * 100_000], "components": range(3)}, "longer than 262144 bytes"),
        ({"programs": [pb.StepProgram(argv=["a\0"])]}, "NUL"),
        ({"input": pb.StepInput(rank=-2)}, "--input: -2 is no task"),
        ({"input": pb.StepInput(path="in\0")}, "NUL"),
        ({"input": pb.StepInput(path="x" * 5_000)}, "--input: "),
        ({"input": pb.StepInput(terminal=pb.TerminalSize(rows=70_000))}, "--pty: 70000"),
        ({"mpi": "lam"}, "--mpi: 'lam' is no interface of this release: use pmi2, pmix or none"),
        ({"mpi": "x" * 5_000}, "--mpi: 'xxx"),
        ({"node_names": ["cn1", "a\n"]}, "--nodelist"),
    ):
        with pytest.raises(Refused, match=said):
            step(**fields)
    assert step(argv=["a", "b"]).argv == ("a", "b")
    assert (step().components, step().programs) == ((0,), ())
    over = step(components=[0, 2], programs=[pb.StepProgram(argv=["a"], tasks=3), pb.StepProgram(argv=["b"])])
    assert over.components == (0, 2)
    assert over.programs == (StepProgram(("a",), 3), StepProgram(("b",)))
    assert step(endpoint="[FD00:0::5]:4711").endpoint == "[fd00::5]:4711"
    assert (step().mpi, step(mpi="pmi").mpi) == ("", "pmi")
    assert step().input is None
    assert step(input=pb.StepInput(rank=-1)).input == StepInput()
    terminal = pb.StepInput(terminal=pb.TerminalSize(rows=30, columns=100))
    assert step(input=terminal).input == StepInput(0, terminal=(30, 100))


def test_commands_and_doors_refuse_by_the_same_rule_in_the_same_words() -> None:
    """Goal: what a command takes, the door takes, and what both refuse they refuse alike."""
    around = SubmitContext(cwd="/w", host="h", umask=0, now_us=0, offset_s=lambda _us: 0, environment={})

    def by_command(option: str, text: str, arguments: Sequence[str]) -> str:
        given = Parser(rows_of("essubmit")).parse([option, text] if option else [])
        try:
            draft_job(given, b"#!/bin/sh\n", "name", arguments, around)
        except OptionError as error:
            return str(error)
        return ""

    def by_door(**fields: object) -> str:
        try:
            read(**fields)
        except Refused as refused:
            return refused.text
        return ""

    for option, field, text in (
        ("--job-name", "name", "x" * 257),
        ("--job-name", "name", "x" * 256),
        ("--account", "account", "\x07"),
        ("--qos", "qos", "q" * 300),
        ("--partition", "partition", "p" * 64),
        ("--comment", "comment", "c" * 1024),
        ("--comment", "comment", "c" * 1025),
        ("--output", "output", "/" + "o" * 4096),
        ("--chdir", "work_dir", "/" + "o" * 4096),
    ):
        assert by_command(option, text, ()) == by_door(**{field: text}), (option, len(text))
    for arguments in (["x" * 131_072], ["x" * 100_000] * 3, ["y"] * 16_385, ["z" * 131_071]):
        assert by_command("", "", arguments) == by_door(arguments=arguments)


def test_packs_are_jobs_of_the_call() -> None:
    given = [pb.PackRequest(first=1, delays_s=[0, 30]), pb.PackRequest(first=3, delays_s=[0, 0])]
    assert requests.pack_drafts(given, 5) == (PackDraft(1, (0, 30)), PackDraft(3, (0, 0)))
    for pack, said in (
        (pb.PackRequest(), "it has 0 parts: give 2 to 128"),
        (pb.PackRequest(delays_s=[0] * 129), "it has 129 parts"),
        (pb.PackRequest(first=4, delays_s=[0, 1]), "it takes jobs that are not among the 5"),
        (pb.PackRequest(first=2**32 - 1, delays_s=[0, 1]), "it takes jobs that are not among the 5"),
    ):
        with pytest.raises(Refused, match=said):
            requests.pack_drafts([pack], 5)
    with pytest.raises(Refused, match="not among the 5"):
        requests.pack_drafts([pb.PackRequest(delays_s=[0] * 3)] * 2, 5)


@pytest.mark.parametrize("number", [-1, 65, 999])
def test_what_is_no_signal(number: int) -> None:
    with pytest.raises(Refused, match="is not a signal"):
        requests.cancel(pb.CancelRequest(user="alice", signal=number), ALICE)
    with pytest.raises(Refused, match="is not a signal"):
        requests.finish_step(pb.FinishStepRequest(job_id=1, signal=number), ALICE)


@pytest.mark.parametrize("code", [-1, 256, 2**31 - 1])
def test_what_is_no_exit_code(code: int) -> None:
    with pytest.raises(Refused, match=r"exit code: .* is not within 0\.\.255"):
        requests.finish_step(pb.FinishStepRequest(job_id=1, exit_code=code), ALICE)
