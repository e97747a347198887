"""Steps that run, as `scontrol show step` and `squeue -s` show them."""

from __future__ import annotations

from eslurm.compat.slurm import words
from eslurm.compat.slurm.job_fields import NULL
from eslurm.core.model.wording import escaped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

HEADS = ("STEPID", "NAME", "PARTITION", "USER", "TIME", "NODELIST")
WIDTHS = (15, 8, 9, 8, 9)


def step_name(info: Any) -> str:
    """`17.0`, `17_4.batch`."""
    job = f"{info.array_job_id}_{info.array_task}" if info.HasField("array_task") else str(info.job_id)
    return f"{job}.{'batch' if info.is_batch else info.step}"


def step_record(info: Any, moment: Callable[[int], str], *, is_oneliner: bool) -> str:
    """A step, with the empty line that follows it."""
    lines = [
        f"StepId={step_name(info)} UserId={info.uid} StartTime={moment(info.created_us)} TimeLimit=UNLIMITED",
        f"State={words.long_state(info.state)} Partition={info.partition} NodeList={info.node_names}",
        f"Nodes={info.nodes} CPUs={info.cpus} Tasks={info.tasks} Name={escaped(info.name)} Network={NULL}",
        f"TRES=cpu={info.cpus},node={info.nodes}",
        f"ResvPorts={NULL}",
        "CPUFreqReq=Default",
        f"SrunHost:Pid={NULL}:0",
    ]
    return " ".join(lines) + "\n" if is_oneliner else "\n   ".join(lines) + "\n\n"


def step_row(info: Any, time_text: str) -> tuple[str, ...]:
    """The cells of a line of `squeue -s`."""
    return step_name(info), escaped(info.name), info.partition, info.user, time_text, info.node_names


def line_of(cells: tuple[str, ...]) -> str:
    """A line of `squeue -s`; cells are cut to their widths, but the last one."""
    fixed = [cell[:width].rjust(width) for cell, width in zip(cells, WIDTHS, strict=False)]
    return " ".join([*fixed, cells[-1]]) + "\n"
