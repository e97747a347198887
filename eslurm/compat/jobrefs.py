"""Jobs as users name them: `17`, a task `17_4`, several tasks `17_[4-6,9]`, a part `17+1` or `17_4+1`.

Each may name its cell of a federation: `17@beta`, `17_4+1@beta`.
"""

from __future__ import annotations

from eslurm.compat.arrays import parse_array
from eslurm.compat.errors import OptionError, whole_number
from eslurm.core.model.request_limits import PARTS_MAX

JOB_ID_MAX = 2**31 - 1
NO_TASK = -1
NO_PART = -1
_TASKS_MAX = 100_000
_CELL_CHARS_MAX = 63
_NAME_SIGNS = str.maketrans("_.-", "000")


def parse_job_refs(text: str, option: str = "job") -> tuple[tuple[int, int, int, str], ...]:
    """The (job id, task, part, cell) that one word names; -1 is the whole job, or all parts. Raises OptionError."""
    job, at, cell = text.rpartition("@") if "@" in text else (text, "", "")
    if at and not _is_cell(cell):
        raise OptionError(option, text, "names no cell", "use e.g. 17@beta, or 17 for one that has the id")
    named, plus, part_text = job.partition("+")
    part = whole_number(part_text, 3) if plus else NO_PART
    if plus and not 0 <= part < PARTS_MAX:
        raise OptionError(option, text, "does not name a part of a job", "use e.g. 17+0 for the first one")
    job_text, underscore, task_text = named.partition("_")
    job_id = parse_job_id(job_text, option, text)
    if not underscore:
        return ((job_id, NO_TASK, part, cell),)
    if task_text.startswith("[") and task_text.endswith("]"):
        task_text = task_text[1:-1]
    elif whole_number(task_text, 10) < 0:
        raise OptionError(option, text, "is not a job id", "use e.g. 17, 17_4 or 17_[4-6]")
    ranges, limit = parse_array(task_text, option)
    tasks = [task for low, high, step in ranges for task in range(low, high + 1, step)]
    if limit or len(tasks) > _TASKS_MAX:
        raise OptionError(option, text, "is not a list of tasks", f"name the whole array: {job_id}")
    return tuple((job_id, task, part, cell) for task in tasks)


def parse_job_id(text: str, option: str = "job", whole: str = "") -> int:
    """A job id alone: positive, 31 bits. Raises OptionError."""
    job_id = whole_number(text, 10)
    if not 0 < job_id <= JOB_ID_MAX:
        raise OptionError(
            option, whole or text, "is not a job id", "use the number that esqueue shows, e.g. 17 or 17_4"
        )
    return job_id


def _is_cell(text: str) -> bool:
    """Check a cell's name; without regular expressions, which every command would load."""
    letters = text.translate(_NAME_SIGNS)
    return text.isascii() and letters.isalnum() and text[0].isalnum() and len(text) <= _CELL_CHARS_MAX
