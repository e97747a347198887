"""The variables programs find, for a batch script and for a step's tasks; and names of files."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from eslurm.compat.environment import (
    PHASE_VALUE_CHARS_MAX,
    SPAN_NODELIST_BYTES_MAX,
    StepEnvironment,
    batch_environment,
    decode_environment,
    encode_environment,
    find_tasks,
    phase_environment,
    repeated,
)
from eslurm.compat.filenames import FileNameFields, default_output, expand_pattern
from eslurm.core.model.gateways import GatewayRequest
from eslurm.core.model.guests import Guest, JointStep
from eslurm.core.model.job import Principal
from eslurm.core.model.protocol import JobLaunch, LaunchStep, NodeGroup
from eslurm.core.model.request import PartSpec, Request
from tests.kits.launches import launch_of
from tests.support.golden import Golden

NAMES = ("cn05", "cn06", "gpu1")


def launch(**changes: object) -> JobLaunch:
    values: dict[str, object] = {
        "job_id": 17,
        "attempt": 2,
        "name": "fluid",
        "user": Principal("ada", 1001, 100),
        "partition": "main",
        "groups": (NodeGroup(((4, 2),), (4, 2048), 2), NodeGroup(((9, 1),), (2, 2048), 1)),
        "node_names": "cn[05-06],gpu1",
        "script_hash": b"",
        "environment_hash": b"",
        "work_dir": "/scratch",
        "cpus_per_task": 2,
    }
    return launch_of(**(values | changes))


def test_a_batch_script_knows_its_job() -> None:
    found = batch_environment(launch(), NAMES, {"HOME": "/home/ada", "SLURM_SUBMIT_DIR": "/home/ada/run"})
    expected = {
        "SLURM_JOB_ID": "17",
        "SLURM_JOBID": "17",
        "SLURM_JOB_NAME": "fluid",
        "SLURM_JOB_NODELIST": "cn[05-06],gpu1",
        "SLURM_NNODES": "3",
        "SLURM_NTASKS": "5",
        "SLURM_CPUS_PER_TASK": "2",
        "SLURM_JOB_CPUS_PER_NODE": "4(x2),2",
        "SLURM_TASKS_PER_NODE": "2(x2),1",
        "SLURM_MEM_PER_NODE": "2048",
        "SLURM_SUBMIT_DIR": "/home/ada/run",
        "SLURM_RESTART_COUNT": "1",
        "SLURM_PROCID": "0",
        "SLURM_NODEID": "0",
        "SLURMD_NODENAME": "cn05",
        "SLURM_CPUS_ON_NODE": "4",
        "SLURM_JOB_USER": "ada",
        "ENVIRONMENT": "BATCH",
        "HOME": "/home/ada",
    }
    assert {name: found.get(name) for name in expected} == expected
    assert "SLURM_ARRAY_TASK_ID" not in found
    for name in expected:
        if name.startswith("SLURM_"):
            assert found["E" + name] == expected[name]


def test_an_array_task_knows_its_place() -> None:
    found = batch_environment(
        launch(array_job_id=12, array_task=3, array_count=16, array_min=0, array_max=15), NAMES
    )
    assert [
        found[f"SLURM_ARRAY_{name}"] for name in ("JOB_ID", "TASK_ID", "TASK_COUNT", "TASK_MIN", "TASK_MAX")
    ] == [
        "12",
        "3",
        "16",
        "0",
        "15",
    ]


def test_the_surrounding_job_leaves_no_trace() -> None:
    outer = {
        "SLURM_ARRAY_TASK_ID": "9",
        "ESLURM_STEP_ID": "4",
        "SLURMD_NODENAME": "old",
        "ESLURM_SOCKET": "/run/s",
        "SLURM_CONF": "/etc/slurm.conf",
    }
    found = batch_environment(launch(), NAMES, outer)
    assert "SLURM_ARRAY_TASK_ID" not in found
    assert "ESLURM_STEP_ID" not in found
    assert found["SLURMD_NODENAME"] == "cn05"
    assert found["ESLURM_SOCKET"] == "/run/s"
    assert found["SLURM_CONF"] == "/etc/slurm.conf"
    assert found["SLURM_SUBMIT_DIR"] == "/scratch"


def test_a_steps_tasks_are_numbered_over_its_nodes() -> None:
    step = LaunchStep(
        job_id=17,
        attempt=2,
        step=0,
        groups=(NodeGroup(((5, 1),), (4, 0), 2), NodeGroup(((9, 1),), (2, 0), 1)),
        argv=("hostname",),
        environment_hash=b"",
        work_dir="/scratch",
        endpoint="127.0.0.1:5",
        cookie=b"c",
        tasks=3,
    )
    environment = StepEnvironment(launch(), step, NAMES, {"A": "b"})
    assert environment.shared["SLURM_NTASKS"] == "3"
    assert environment.shared["SLURM_STEP_NODELIST"] == "cn06,gpu1"
    assert environment.shared["SLURM_STEP_TASKS_PER_NODE"] == "2,1"
    assert environment.shared["SLURM_JOB_NUM_NODES"] == "3"
    assert environment.shared["A"] == "b"
    assert "SLURM_PROCID" not in environment.shared
    assert [environment.of_task(5, local)["SLURM_PROCID"] for local in range(2)] == ["0", "1"]
    last = environment.of_task(9, 0)
    assert (last["SLURM_PROCID"], last["SLURM_LOCALID"], last["SLURM_NODEID"]) == ("2", "0", "1")
    assert (last["SLURMD_NODENAME"], last["SLURM_GTIDS"]) == ("gpu1", "2")
    assert find_tasks(step, 4) is None
    assert "PMI_RANK" not in last


def test_a_task_with_mpi_knows_its_rank_and_no_surrounding_program() -> None:
    groups = (NodeGroup(((5, 1),), (4, 0), 2), NodeGroup(((9, 1),), (2, 0), 1))
    request = LaunchStep(
        17, 2, 3, groups, ("solve",), b"", "/", "host:1", b"c", 3, rank_first=4, tasks_total=7, mpi="pmi"
    )
    outer = {"PMI_FD": "9", "PMI_RANK": "8", "PMI_SIZE": "9", "PMI_TIMEOUT": "5", "SLURM_MPI_TYPE": "pmi2"}
    step = StepEnvironment(launch(), request, NAMES, outer)
    found = step.shared | step.of_task(9, 0)
    named = {name: value for name, value in found.items() if "PMI" in name or "MPI" in name}
    assert named == {
        "PMI_JOBID": "17.3",
        "PMI_RANK": "6",
        "PMI_SIZE": "7",
        "PMI_SPAWNED": "0",
        "PMI_TIMEOUT": "5",
        "SLURM_MPI_TYPE": "pmi2",
    }


def test_a_step_on_all_nodes_has_the_list_of_its_job() -> None:
    groups = (NodeGroup(((4, 1),), (4, 0), 2), NodeGroup(((5, 1), (9, 1)), (2, 0), 1))
    request = LaunchStep(17, 2, 3, groups, ("solve",), b"", "/", "host:1", b"c", 4)
    step = StepEnvironment(launch(node_names="as it came"), request, NAMES)
    assert step.shared["SLURM_STEP_NODELIST"] == "as it came"
    assert (
        step.shared["SLURM_STEP_TASKS_PER_NODE"] == "2,1(x2)" and step.shared["SLURM_STEP_NUM_NODES"] == "3"
    )
    assert [find_tasks(request, number) for number in (4, 5, 9)] == [(2, 0), (1, 2), (1, 3)]
    assert step.of_task(9, 0)["SLURMD_NODENAME"] == "gpu1"


def test_environments_keep_every_byte() -> None:
    variables = {"B": "x=y\nz", "A": "", "raw": "\udcff"}
    blob = encode_environment(variables | {"": "no", "x=": "no", "n": "a\0b"})
    assert blob == b"A=\0B=x=y\nz\0raw=\xff\0"
    assert decode_environment(blob) == variables
    assert decode_environment(b"") == {}


@pytest.mark.parametrize(
    ("counts", "text"), [([(2, 1), (2, 2), (1, 1)], "2(x3),1"), ([(1, 1)], "1"), ([(3, 0)], ""), ([], "")]
)
def test_run_lengths(counts: list[tuple[int, int]], text: str) -> None:
    assert repeated(counts) == text


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("out", "out"),
        ("slurm-%j.out", "slurm-21.out"),
        ("%A_%a-%4a.txt", "17_3-0003.txt"),
        ("%x.%u.%N.%n.%t", "a_b.ada.cn05.1.2"),
        ("100%%-%q-%", "100%-%q-%"),
        ("%J/%s", "21.batch/batch"),
        ("%99999j", "0000000021"),
        ("\\%j", "%j"),
        ("%4x", "a_b"),
    ],
)
def test_file_name_patterns(pattern: str, name: str) -> None:
    fields = FileNameFields(
        21,
        job_name="a/b",
        user="ada",
        node_name="cn05.site.org",
        array_job_id=17,
        array_task=3,
        node=1,
        task=2,
    )
    assert expand_pattern(pattern, fields) == name


def test_default_file_names() -> None:
    plain = FileNameFields(21, job_name="x", user="ada", node_name="n")
    assert expand_pattern(default_output(False), plain) == "slurm-21.out"
    assert expand_pattern(default_output(True), plain) == "slurm-21_0.out"


def test_a_batch_script_sees_the_devices_of_its_node_and_no_others() -> None:
    devices = ((4, "gpu", (2, 3)), (4, "fpga-x", (0,)), (9, "gpu", (0,)))
    found = batch_environment(launch(devices=devices), NAMES, {"CUDA_VISIBLE_DEVICES": "7"})
    assert found["CUDA_VISIBLE_DEVICES"] == found["ROCR_VISIBLE_DEVICES"] == "2,3"
    assert (found["SLURM_JOB_GPUS"], found["SLURM_GPUS_ON_NODE"]) == ("2,3", "2")
    assert found["SLURM_JOB_FPGA_X"] == "0"
    without = batch_environment(launch(), NAMES, {"CUDA_VISIBLE_DEVICES": "7"})
    assert without["CUDA_VISIBLE_DEVICES"] == "7", "where GPUs are nobody's business they are none of ours"


def test_each_node_of_a_step_sees_its_own_devices() -> None:
    groups = (NodeGroup(((4, 2),), (2,), 1),)
    request = LaunchStep(17, 2, 3, groups, ("solve",), b"", "/", "host:1", b"c", 2)
    devices = ((4, "gpu", (1,)),)
    step = StepEnvironment(launch(devices=devices), request, NAMES, {"CUDA_VISIBLE_DEVICES": "1"})
    first = step.of_task(4, 0)
    second = step.of_task(5, 0)
    assert (first["CUDA_VISIBLE_DEVICES"], first["SLURM_STEP_GPUS"]) == ("1", "1")
    assert second["CUDA_VISIBLE_DEVICES"] == "", "that node gives the job none"


def test_a_job_knows_its_class_of_service_and_its_reservation() -> None:
    found = batch_environment(launch(qos="urgent", reservation="course"), NAMES)
    assert (found["SLURM_JOB_QOS"], found["SLURM_JOB_RESERVATION"]) == ("urgent", "course")


# ---- jobs of several parts ----

SHARED = (
    NodeGroup(((4, 2),), (4, 2048, 1), 2, 0),
    NodeGroup(((5, 1),), (8, 0, 2), 1, 1),
    NodeGroup(((9, 1),), (8, 0, 2), 2, 1),
    NodeGroup(((9, 1),), (1, 512), 1, 2),
)
"""Parts 0 and 1 share node 5, parts 1 and 2 node 9."""


def several(**changes: object) -> JobLaunch:
    """A job of three parts; its nodes are cn05, cn06 and gpu1."""
    found = launch(groups=SHARED, account="physics", **changes)
    parts = (PartSpec(), PartSpec("booster"), PartSpec("data"))
    components = (Request(cpus_per_task=2), Request(cpus_per_task=8), Request())
    return replace(found, spec=replace(found.spec, parts=parts, components=components))


def sibling(component: int) -> LaunchStep:
    """Of a step over parts 1 and 2 that is numbers 6 and 7: two tasks on cn06, one on gpu1; and one on gpu1."""
    first = NodeGroup(((5, 1),), (2,), 2, 1), NodeGroup(((9, 1),), (1,), 1, 1)
    second = (NodeGroup(((9, 1),), (1,), 1, 2),)
    return LaunchStep(
        *(17, 2, 5 + component, first if component == 1 else second, ("solve",), b"", "/", "host:1", b"c"),
        tasks=3 if component == 1 else 1,
        component=component,
        rank_first=0 if component == 1 else 3,
        tasks_total=4,
        first=6,
        whole=(*first, *second),
    )


def described(variables: Mapping[str, str]) -> str:
    return "".join(
        f"{name}={variables[name]}\n"
        for name in sorted(variables)
        if name.startswith(("SLURM", "CUDA")) and "SUBMIT" not in name
    )


def with_gateways(parts: int) -> JobLaunch:
    """The job with its last part as gateways."""
    found = several()
    kept = (*found.spec.parts[: parts - 1], PartSpec("gateways", "gateway"))
    spec = replace(
        found.spec,
        parts=kept,
        components=found.spec.components[:parts],
        gateway=GatewayRequest(1, file="" if parts == 2 else "/scratch/routes"),
    )
    return replace(found, spec=spec, groups=tuple(one for one in SHARED if one.component < parts))


def test_gateways_are_no_part_that_a_script_finds() -> None:
    found = batch_environment(with_gateways(3), NAMES)
    assert found["SLURM_HET_SIZE"] == "2"
    assert "SLURM_JOB_NODELIST_HET_GROUP_1" in found and "SLURM_JOB_NODELIST_HET_GROUP_2" not in found
    assert (found["ESLURM_GATEWAYS"], found["ESLURM_GATEWAY_ROUTES"]) == ("1", "/scratch/routes")


def test_a_job_of_one_part_has_no_parts_with_gateways() -> None:
    launched = with_gateways(2)
    found = batch_environment(launched, NAMES)
    assert not [name for name in found if "HET" in name or "PACK" in name]
    assert (found["SLURM_JOB_NUM_NODES"], found["SLURM_JOB_NODELIST"]) == ("2", "cn[05-06]")
    assert found["ESLURM_GATEWAY_ROUTES"] == f"{launched.spec.work_dir}/eslurm-route-17"
    assert not [name for name in batch_environment(several(), NAMES) if "GATEWAY" in name]


def test_the_script_of_several_parts_finds_part_0_and_all_parts_by_their_suffixes(golden: Golden) -> None:
    found = batch_environment(several(), NAMES)
    golden("compat/environment-parts.txt", described(found))
    assert found["ESLURM_JOB_NODELIST_HET_GROUP_1"] == found["SLURM_JOB_NODELIST_HET_GROUP_1"] == "cn06,gpu1"
    assert found["ESLURM_HET_SIZE"] == "3"


def test_a_task_of_a_step_over_parts_finds_the_whole_step(golden: Golden) -> None:
    text = ""
    for component, node, local in ((1, 5, 0), (1, 5, 1), (1, 9, 0), (2, 9, 0)):
        step = StepEnvironment(several(), sibling(component), NAMES, {"SLURM_HET_SIZE": "9"})
        own = step.shared | step.of_task(node, local)
        plain = {name: value for name, value in own.items() if "_HET_GROUP_" not in name}
        text += f"# part {component}, node {node}, task {local}\n{described(plain)}\n"
    golden("compat/environment-step-over-parts.txt", text)
    assert [find_tasks(sibling(1), node) for node in (4, 5, 9)] == [None, (2, 0), (1, 2)]
    assert find_tasks(sibling(2), 9) == (1, 3)


def test_a_step_in_one_part_knows_the_nodes_of_that_part_only() -> None:
    step = LaunchStep(
        *(17, 2, 3, (NodeGroup(((5, 1),), (8,), 1, 1),), ("solve",), b"", "/", "host:1", b"c", 1), component=1
    )
    found = StepEnvironment(several(), step, NAMES).shared
    assert (found["SLURM_JOB_NODELIST"], found["SLURM_JOB_PARTITION"]) == ("cn06,gpu1", "booster")
    assert (found["SLURM_STEP_NODELIST"], found["SLURM_STEP_ID"]) == ("cn06", "3")
    assert found["SLURM_JOB_CPUS_PER_NODE"] == "8(x2)"


def test_a_step_sees_the_devices_of_its_own_part_on_a_shared_node() -> None:
    devices = ((5, "gpu", (0,)), (5, "gpu", (2, 3)), (9, "gpu", (1,)), (9, "fpga", (0,)))
    both = several(devices=devices, device_parts=(0, 1, 1, 2))
    assert batch_environment(both, NAMES)["CUDA_VISIBLE_DEVICES"] == "", "part 0 has none on the first node"
    tasks = {
        component: StepEnvironment(both, sibling(component), NAMES).of_task(9, 0) for component in (1, 2)
    }
    assert tasks[1]["CUDA_VISIBLE_DEVICES"] == "1" and tasks[2]["CUDA_VISIBLE_DEVICES"] == ""
    assert (tasks[1]["SLURM_STEP_FPGA"], tasks[2]["SLURM_STEP_FPGA"]) == ("", "0")
    assert StepEnvironment(both, sibling(1), NAMES).of_task(5, 0)["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_the_parts_of_an_arrays_task_have_the_tasks_id() -> None:
    found = batch_environment(several(array_job_id=12, array_task=3, array_count=4), NAMES)
    assert {found[f"SLURM_JOB_ID_HET_GROUP_{part}"] for part in range(3)} == {"17"}


def test_a_phase_knows_all_parts_of_the_job_and_nothing_of_single_ones() -> None:
    devices = ((5, "gpu", (0,)), (5, "gpu", (2, 3)), (9, "gpu", (1,)))
    both = several(devices=devices, device_parts=(0, 1, 1))
    found = phase_environment(both, NAMES, "test", "cn06", 5, "epilog", (0, 9))
    assert (found["SLURM_JOB_NODELIST"], found["SLURM_NODEID"]) == ("cn[05-06],gpu1", "1")
    assert found["SLURM_JOB_GPUS"] == found["CUDA_VISIBLE_DEVICES"] == "0,2,3"
    assert (found["SLURM_JOB_EXIT_CODE"], found["SLURM_JOB_EXIT_CODE2"]) == ("9", "0:9")
    assert found["SLURM_HET_SIZE"] == "3" and not [name for name in found if "_HET_GROUP_" in name]
    assert {name.replace("SLURM", "ESLURM", 1) for name in found if name.startswith("SLURM_")} <= found.keys()


def test_a_phase_gets_no_list_that_a_program_could_not_take() -> None:
    for count, is_there in ((PHASE_VALUE_CHARS_MAX, True), (PHASE_VALUE_CHARS_MAX + 1, False)):
        found = phase_environment(launch(node_names="n" * count), NAMES, "test", "cn05", 4, "prolog", None)
        assert ("SLURM_JOB_NODELIST" in found, "SLURM_JOB_EXIT_CODE" in found) == (is_there, False)


def test_a_job_that_spans_cells_knows_all_of_its_nodes() -> None:
    guests = (Guest("beta", 2, 71, "b[1-2]"), Guest("gamma", 1, 9, "g7"))
    found = batch_environment(launch(guests=guests), NAMES, {"SLURM_SPAN_CELLS": "old"})
    assert found["SLURM_SPAN_CELLS"] == found["ESLURM_SPAN_CELLS"] == "beta,gamma"
    assert found["SLURM_SPAN_NUM_NODES"] == "6" and found["SLURM_NNODES"] == "3"
    assert found["SLURM_SPAN_NODELIST"] == "cn[05-06],gpu1,b[1-2],g7"
    assert "SLURM_SPAN_CELLS" not in batch_environment(launch(), NAMES, {"SLURM_SPAN_CELLS": "old"})


@pytest.mark.parametrize("more", [0, 1])
def test_a_list_of_nodes_that_no_process_could_take_is_left_out(more: int) -> None:
    own = len("cn[05-06],gpu1,")
    long = Guest("beta", 2, 71, "b" * (SPAN_NODELIST_BYTES_MAX - own + more))
    found = batch_environment(launch(guests=(long,)), NAMES, {})
    assert ("ESLURM_SPAN_NODELIST" in found) is not more and found["SLURM_SPAN_NUM_NODES"] == "5"
    subprocess.run(["true"], env=found, check=True)


def test_a_part_of_a_step_over_cells_counts_through_all_of_them() -> None:
    joint = JointStep("17@alpha", 6, 11, 4, 7, "a[1-4],cn[05-06],gpu1", "1(x3),2(x4)")
    step = LaunchStep(
        *(17, 2, 0, launch().groups, ("app",), b"", "/", "", b"", 5),
        rank_first=6,
        tasks_total=11,
        joint=joint,
    )
    environment = StepEnvironment(launch(), step, NAMES)
    found = environment.shared
    expected = {
        "NTASKS": "11",
        "STEP_NUM_NODES": "7",
        "STEP_NODELIST": "a[1-4],cn[05-06],gpu1",
        "STEP_TASKS_PER_NODE": "1(x3),2(x4)",
        "SPAN_JOB_ID": "17@alpha",
        "JOB_NUM_NODES": "3",
    }
    assert {name: found[f"SLURM_{name}"] for name in expected} == expected
    own = environment.of_task(9, 0)
    assert (own["SLURM_PROCID"], own["SLURM_NODEID"], own["SLURM_LOCALID"]) == ("10", "6", "0")
