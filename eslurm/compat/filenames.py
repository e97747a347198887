"""File name patterns of `--output`, `--error`, `--input`: `%j %J %A %a %N %x %u %n %t %s %%`, also `%4j`.

Expanded on the node, where the host's name and the task's number are known. Never fails: an unknown letter
stays as it is written, as with Slurm.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_OUTPUT = "slurm-%j.out"
DEFAULT_ARRAY_OUTPUT = "slurm-%A_%a.out"
_PAD_MAX = 10


class FileNameFields:
    """Values of the letters. `array_task` is -1 outside arrays; `node` and `task` count from 0."""

    def __init__(
        self,
        job_id: int,
        *,
        job_name: str,
        user: str,
        node_name: str,
        array_job_id: int = 0,
        array_task: int = -1,
        node: int = 0,
        task: int = 0,
        step: str = "batch",
    ) -> None:
        self.job_id = job_id
        self.job_name = job_name
        self.user = user
        self.node_name = node_name
        self.array_job_id = array_job_id
        self.array_task = array_task
        self.node = node
        self.task = task
        self.step = step


def default_output(is_array: bool) -> str:
    """Slurm's default name of the output file."""
    return DEFAULT_ARRAY_OUTPUT if is_array else DEFAULT_OUTPUT


def expand_pattern(pattern: str, fields: FileNameFields) -> str:
    """The file's name. As with Slurm, a backslash anywhere makes the pattern literal (and goes)."""
    if "\\" in pattern:
        return pattern.replace("\\", "")
    if "%" not in pattern:
        return pattern
    values = _values(fields)
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        percent = pattern.find("%", at)
        if percent < 0:
            break
        parts.append(pattern[at:percent])
        at = _expand_one(pattern, percent, values, parts)
    parts.append(pattern[at:])
    return "".join(parts)


def _expand_one(pattern: str, percent: int, values: Mapping[str, str], parts: list[str]) -> int:
    """Append the value of the `%...` at `percent`; return the index of the rest."""
    letter_at = percent + 1
    while letter_at < len(pattern) and "0" <= pattern[letter_at] <= "9":
        letter_at += 1
    letter = pattern[letter_at : letter_at + 1]
    value = values.get(letter)
    if value is None:
        parts.append(pattern[percent : letter_at + 1])
        return letter_at + 1
    digits = pattern[percent + 1 : letter_at]
    if digits and value.isdigit():
        value = value.zfill(min(int(digits[-3:]), _PAD_MAX))
    parts.append(value)
    return letter_at + 1


def _values(fields: FileNameFields) -> Mapping[str, str]:
    # A slash in a name must not open a directory.
    return {
        "%": "%",
        "j": str(fields.job_id),
        "J": f"{fields.job_id}.{fields.step}",
        "A": str(fields.array_job_id or fields.job_id),
        "a": str(max(0, fields.array_task)),
        "N": fields.node_name.partition(".")[0],
        "n": str(fields.node),
        "s": fields.step,
        "t": str(fields.task),
        "u": fields.user.replace("/", "_"),
        "x": fields.job_name.replace("/", "_"),
    }


def routes_file(job_id: int, file: str, work_dir: str) -> str:
    """The path of a job's routes: the file that it asked for, or one in its directory."""
    return file or f"{work_dir.rstrip('/')}/eslurm-route-{job_id}"


def error_file(job_id: int, work_dir: str) -> str:
    """The path of the file that says why a job's gateways failed (X-53)."""
    return f"{work_dir.rstrip('/')}/JOB-{job_id}-gateway.err"


def gateway_log(job_id: int, node_name: str, work_dir: str) -> str:
    """The path of what the gateway daemons on a node write to their error output."""
    return f"{work_dir.rstrip('/')}/JOB-{job_id}-gateway-{node_name.partition('.')[0]}.log"
