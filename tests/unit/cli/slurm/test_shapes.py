"""Options of sbatch about shapes: what becomes of amounts for each GPU, and which minima of nodes hold anyway."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from escli.options import Words
from escli.slurm.shapes import settle
from eslurm.compat.errors import OptionError
from eslurm.compat.slurm.sbatch_options import SHAPES
from tests.unit.cli.slurm.test_sbatch import submitted


def words(text: str) -> Words:
    found = Words()
    for option in text.split():
        long, _, value = option.partition("=")
        found.put(long, value, f"--{long}")
    return found


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("cpus-per-gpu=4 gpus-per-node=2", {"cpus-per-task": "8"}),
        ("cpus-per-gpu=4 gpus-per-node=2 nodes=3", {"cpus-per-task": "8"}),
        ("cpus-per-gpu=4 gpus-per-node=2 ntasks-per-node=2 nodes=3", {"cpus-per-task": "4"}),
        ("cpus-per-gpu=4 gpus-per-node=2 ntasks=8 nodes=1", {"cpus-per-task": "1"}),
        ("cpus-per-gpu=4 gpus-per-task=a100:2 ntasks=8", {"cpus-per-task": "8"}),
        ("cpus-per-gpu=4 gpus=8 nodes=2", {"cpus-per-task": "16"}),
        ("cpus-per-gpu=4 gpus=8", {"cpus-per-task": "32"}),
        ("cpus-per-gpu=4 gpus=8 ntasks=4", {"cpus-per-task": "8"}),
        ("cpus-per-gpu=3 gres=fpga:1,gpu:a100:2", {"cpus-per-task": "6"}),
        ("mem-per-gpu=4G gpus-per-node=2", {"mem": "8192M"}),
        ("mem-per-gpu=4G gres=gpu:2 nodes=2-4 ntasks=16", {"mem": "8192M"}),
        ("mem-per-gpu=4G gpus=8 nodes=2", {"mem": "16384M"}),
        ("mem-per-gpu=4G gpus-per-task=1 ntasks=8 cpus-per-task=4", {"mem-per-cpu": "1024M"}),
        (
            "mem-per-gpu=8G cpus-per-gpu=4 gpus-per-task=1 ntasks=8",
            {"mem-per-cpu": "2048M", "cpus-per-task": "4"},
        ),
        ("ntasks-per-gpu=1 gpus=8", {"ntasks": "8"}),
        ("ntasks-per-gpu=1 gpus=8 ntasks=8", {"ntasks": "8"}),
        ("ntasks-per-gpu=2 gpus-per-node=4 nodes=2", {"ntasks": "16", "ntasks-per-node": "8"}),
        ("ntasks-per-gpu=2 gres=gpu:4", {"ntasks": "8", "ntasks-per-node": "8"}),
        ("ntasks-per-gpu=1 ntasks=8", {"gpus": "8"}),
        ("ntasks-per-gpu=2 ntasks=8 nodes=2", {"gpus": "4"}),
        (
            "ntasks-per-gpu=1 cpus-per-gpu=6 mem-per-gpu=12G gpus-per-node=4 nodes=2",
            {"ntasks": "8", "ntasks-per-node": "4", "cpus-per-task": "6", "mem": "49152M"},
        ),
        ("mincpus=4 cpus-per-task=4", {}),
        ("mincpus=8 cpus-per-task=4 ntasks-per-node=2 nodes=4", {}),
        ("mincpus=8 ntasks=8 nodes=1", {}),
        ("sockets-per-node=1", {}),
        ("extra-node-info=2:1:1 cpus-per-task=2", {}),
        ("extra-node-info=*:*:1", {}),
        ("switches=1", {}),
        ("switches=1@10:00 nodes=1 ntasks=64", {}),
        ("switches=4 nodes=2-4", {}),
        ("contiguous nodes=1", {}),
        ("time-min=5 time=10", {}),
        ("time-min=5", {}),
    ],
)
def test_what_becomes_of_them(given: str, made: dict[str, str]) -> None:
    found = words(given)
    settle(found)
    before = words(given)
    kept = {long: before.text(long) for long in before.names() if long not in SHAPES}
    assert {long: found.text(long) for long in found.names()} == kept | made


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("cpus-per-gpu=4", "needs GPUs"),
        ("cpus-per-gpu=4 gres=fpga:1", "needs GPUs"),
        ("cpus-per-gpu=4 gpus=2 cpus-per-task=3", "excludes --cpus-per-task"),
        ("cpus-per-gpu=3 gpus-per-node=1 ntasks-per-node=2", "evenly"),
        ("cpus-per-gpu=4 gpus-per-node=2 ntasks=7", "evenly"),
        ("cpus-per-gpu=4 gpus=8 nodes=3", "evenly"),
        ("cpus-per-gpu=4 gpus=8 nodes=2-4", "evenly"),
        ("cpus-per-gpu=0 gpus=8", "is not a number"),
        ("mem-per-gpu=1G gpus=2 mem=3G", "excludes --mem"),
        ("mem-per-gpu=0 gpus=2", "is no amount"),
        ("mem-per-gpu=1M gpus-per-task=1 ntasks=2 cpus-per-task=3", "evenly"),
        ("ntasks-per-gpu=2 gpus=8 ntasks=8", "makes 16 tasks of these GPUs, not 8"),
        ("ntasks-per-gpu=3 ntasks=8", "evenly"),
        ("ntasks-per-gpu=1", "evenly"),
        ("ntasks-per-gpu=1 gpus-per-node=2 nodes=1-2", "needs a number of nodes"),
        ("ntasks-per-gpu=1 gpus=2 ntasks-per-node=2", "excludes --ntasks-per-node"),
        ("mincpus=2", "is not from 1 to 1"),
        ("mincpus=8 ntasks=8", "is not from 1 to 1"),
        ("mincpus=8 cpus-per-task=4 ntasks=3 ntasks-per-node=2 nodes=2", "is not from 1 to 4"),
        ("sockets-per-node=2", "is not from 1 to 1"),
        ("extra-node-info=1:2", "is none of N, N:1, N:1:1"),
        ("extra-node-info=1:1:1:1", "is none of"),
        ("extra-node-info=x", "is not from 1"),
        ("switches=1 nodes=2", "more nodes than can be promised"),
        ("switches=1 ntasks=2", "more nodes than can be promised"),
        ("switches=0", "more nodes than can be promised"),
        ("switches=x", "more nodes than can be promised"),
        ("contiguous nodes=2", "more nodes than can be promised"),
        ("time-min=11 time=10", "is more than --time"),
        ("time-min=never", "is not a time"),
    ],
)
def test_what_is_refused(given: str, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        settle(words(given))


def test_a_script_for_gpus(state_dir: Path) -> None:
    job: Any = submitted(state_dir, "-N2", "--gpus-per-node=a100:4", "--ntasks-per-gpu=1", "--cpus-per-gpu=8",
                         "--mem-per-gpu=32G", "--hint=nomultithread", "--threads-per-core=1", "--wrap", "true")  # fmt: skip
    part = job.components[0]
    assert (part.tasks, part.tasks_per_node, part.cpus_per_task, part.memory_per_node_mib) == (
        8,
        4,
        8,
        131072,
    )
    assert part.constraint == "gpu:a100"


def test_a_later_memory_takes_an_earlier_one_back(state_dir: Path, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --mem-per-gpu=4G -G 2 -N 1\n")
    assert submitted(state_dir, "--mem=1G", str(script)).components[0].memory_per_node_mib == 1024


def test_an_export_file(state_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_bytes(b"A=1\0B=two\nlines\0=x\0novalue\0HOME=/elsewhere\0")
    job = submitted(state_dir, f"--export-file={path}", "--export=NONE", "--wrap", "true")
    entries = job.environment.split(b"\0")
    assert {b"A=1", b"B=two\nlines"} <= set(entries) and not any(
        one.startswith(b"novalue") for one in entries
    )
    read_fd, write_fd = os.pipe()
    os.write(write_fd, b"FROM=pipe\0")
    os.close(write_fd)
    job = submitted(state_dir, f"--export-file={read_fd}", "--wrap", "true")
    entries = job.environment.split(b"\0")
    assert b"FROM=pipe" in entries and f"HOME={os.environ['HOME']}".encode() in entries


def test_yourself(state_dir: Path) -> None:
    assert (
        submitted(state_dir, f"--uid={os.getuid()}", f"--gid={os.getgid()}", "--wrap", "true").name == "wrap"
    )
