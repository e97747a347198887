"""The steps of `sacctmgr add`, `modify` and `delete`, and what their texts have in common.

Invariant: a request that would mean something else here than in Slurm raises Unusable and changes nothing.
"""

from __future__ import annotations

from eslurm.compat.errors import whole_number
from eslurm.compat.slurm import associations as model
from eslurm.compat.slurm.abbreviated import Unusable
from eslurm.compat.slurm.associations import MEM, SUBMIT, WALL, Change
from eslurm.compat.slurm.layout import padded_clock
from eslurm.compat.slurm.manager_words import USER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eslurm.compat.slurm.manager_words import Request

_SHARE_DIGITS = 10
OLD = "22.05"
"""The release whose texts are others."""
NO_REMOVE = " Error with request: You can not remove the default account of a user"


class Step:
    """Changes that are made together after one question. `text` is printed before it, `trouble` before a refusal's text."""

    __slots__ = ("changes", "text", "trouble")

    def __init__(self, text: str, changes: Sequence[Change], trouble: str = " Error with request: ") -> None:
        self.text = text
        self.changes = list(changes)
        self.trouble = trouble


class Nothing(Exception):
    """Nothing is to be done; `text` is printed, and the exit code is 1."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def check_cluster(request: Request, cluster: str) -> None:
    """Check that only this cluster is named. Raises Unusable."""
    for name in (*request.names("cluster"), *(request.chosen("cluster") or ())):
        if name != cluster:
            raise Unusable(
                f" This cluster '{name}' doesn't exist.",
                "        Contact your admin to add it to accounting.",
            )


def read_limits(request: Request, kind: str) -> dict[str, int | None]:
    """The limits that the settings name."""
    found: dict[str, int | None] = {}
    for one in request.settings:
        option = one.word.name
        if one.key == "tres":
            found.update(model.read_tres(one.value, option))
        elif one.key in ("cpu", "mem", "node"):
            found[one.key] = model.read_count(one.value, option, is_memory=one.key == MEM)
        elif one.key == SUBMIT or (one.key == "maxsubmit" and kind == USER):
            found[SUBMIT] = model.read_count(one.value, option)
        elif one.key == "maxwall" and kind == USER:
            found[WALL] = model.read_wall(one.value, option)
    return found


def limit_lines(limits: Mapping[str, int | None], head: int, submit: str = "GrpSubmitJobs") -> list[str]:
    """The lines of limits in the texts of `add`."""
    tres = {name: value for name, value in limits.items() if name not in (SUBMIT, WALL)}
    lines = []
    if SUBMIT in limits:
        lines.append(line(submit, "NONE" if limits[SUBMIT] is None else str(limits[SUBMIT]), head))
    if tres:
        ended = [f"{name}=-1" for name, value in tres.items() if value is None]
        kept = model.tres_text({name: value for name, value in tres.items() if value is not None})
        lines.append(line("GrpTRES", ",".join(filter(None, (kept, *ended))), head))
    if WALL in limits:
        seconds = limits[WALL]
        lines.append(line("MaxWall", "NONE" if seconds is None else padded_clock(seconds), head))
    return lines


def line(name: str, value: str, head: int) -> str:
    """A setting in the texts of `add`; `head` is the width of its name."""
    return f"  {name:<{head}}= {value}\n"


def read_shares(request: Request) -> str:
    """The shares that a setting gives; empty: none."""
    found = request.setting("fairshare")
    if found is None:
        return ""
    if whole_number(found.value, _SHARE_DIGITS) <= 0:
        raise Unusable(
            f"sacctmgr: error: Fairshare={found.value} is not supported: shares are whole numbers from 1"
        )
    return found.value


def without_ends(limits: Mapping[str, int | None]) -> dict[str, int | None]:
    """The limits of something new: there are none to be ended."""
    return {field: value for field, value in limits.items() if value is not None}


def something(steps: list[Step]) -> list[Step]:
    """The steps. Raises Unusable when there are none."""
    if not steps:
        raise Unusable(" You didn't give me anything to set")
    return steps


def step(head: str, names: Sequence[str], changes: Sequence[Change]) -> Step:
    """A step of `modify`. Raises Nothing when it is about nothing."""
    if not names:
        raise Nothing(f"{head}  Nothing modified\n")
    return Step(head + "".join(f"  {name}\n" for name in names), changes)


def check_conditions(request: Request) -> None:
    """Check that `delete` has conditions. Raises Unusable."""
    if not request.conditions:
        raise Unusable(" No conditions given to remove, not executing.")


def of_user(cluster: str, user: str, account: str, width: int = 10) -> str:
    """An association of a user in Slurm's texts."""
    return f"C = {cluster:<10} A = {account:<{width}} U = {user:<9}"


def merged(present: Sequence[str], names: Sequence[str], sign: str) -> list[str]:
    """The names after `=`, `+=` or `-=`."""
    if sign == "+":
        return list(dict.fromkeys((*present, *names)))
    if sign == "-":
        return [one for one in present if one not in names]
    return list(dict.fromkeys(names))
