"""A request as command options: `--rset`, `--gpus-per-node`, `--gres`, `--time`.

`asked` turns a whole request into options, `update_words` the difference between two into arguments of `esctl update`.
Invariant: the commands read an option written here back as the same request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from eslurm.core.model.features import terms
from eslurm.core.model.hostlist import fold
from eslurm.core.model.job import JobSpec
from eslurm.core.model.request import Chunk, Request
from eslurm.core.model.wording import counted

GPU: Final = "gpu"
_NO_WORD: Final = frozenset("|!(), &")
_AMOUNTS: Final = frozenset(("ncpus", "cores", "cpus", "mem", "memory", "gpus", "ngpus", "gpu", "place"))
"""Words that `--rset` does not read as features."""
_BESIDE_CHUNKS: Final = ("constraint", "licenses", "nodelist", "exclude")
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-")
"""Characters that need no quoting in shells."""


def type_in(constraint: str, resource: str) -> str:
    """The resource type in an expression (`a100` of `ib&gpu:a100`); "" for any."""
    prefix = f"{resource}:"
    for term in terms(constraint):
        if term.startswith(prefix) and not any(char in _NO_WORD for char in term):
            return term.removeprefix(prefix)
    return ""


def items_words(items: int, resource: str) -> str:
    """`2 GPUs`, `1 GPU`, `3 fpga`."""
    return counted(items, "GPU") if resource == GPU else f"{items} {resource}"


def clock(seconds: int) -> str:
    """Seconds in the format of `--time`: `4:00:00`, `1-12:00:00`."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    text = f"{hour}:{minute:02d}:{second:02d}"
    return f"{days}-{text}" if days else text


def devices_option(request: Request) -> str:
    """Resources of nodes of a request without chunks: `--gpus-per-node a100:2`, `--gres gpu:2,fpga:1`; "" for none."""
    parts: list[str] = []
    if [name for name, _ in request.per_node] == [GPU]:
        parts.append(f"--gpus-per-node {_number(request, GPU, request.per_node[0][1])}")
    elif request.per_node:
        entries = [f"{name}:{_number(request, name, items)}" for name, items in request.per_node]
        parts.append(f"--gres {','.join(entries)}")
    parts += [
        f"--gpus-per-task {_number(request, GPU, items)}" for name, items in request.per_task if name == GPU
    ]
    return " ".join(parts)


def asked(request: Request) -> dict[str, str] | None:
    """The options of a request, by long name; None when options cannot express it.

    There is at least one. `exclusive` is "yes". Tasks are left out when they follow from nodes and tasks per node.
    """
    typed = {
        f"{name}:{type_in(request.constraint, name)}" for name, _ in (*request.per_node, *request.per_task)
    }
    if request.chunks:
        typed = set()
        found = {"rset": rset_text(request)}
    else:
        found = _tasks_asked(request)
    if "" in found.values():
        return None
    rest = [term for term in terms(request.constraint) if term not in typed]
    if rest:
        # A single term needs no brackets.
        found["constraint"] = "&".join(terms("&".join(rest)))
    if request.wide:
        found["licenses"] = _amounts(request.wide)
    for option, names in (("nodelist", request.include), ("exclude", request.exclude)):
        if names:
            found[option] = fold(names)
    return found


def _tasks_asked(request: Request) -> dict[str, str]:
    """The options for nodes, tasks, cores, memory and devices; a value is "" when no option can express it."""
    low, high = request.nodes_min, request.nodes_max
    found: dict[str, str] = {}
    if low or high:
        found["nodes"] = (str(low) if low == high else f"{low}-{high}") if low else ""
    if request.tasks != max(1, low) * max(1, request.tasks_per_node):
        found["ntasks"] = str(request.tasks)
    if request.tasks_per_node:
        found["ntasks-per-node"] = str(request.tasks_per_node)
    found["cpus-per-task"] = str(request.cpus_per_task)
    if request.memory_per_node_mib:
        found["mem"] = f"{request.memory_per_node_mib}M"
    if request.memory_per_cpu_mib:
        found["mem-per-cpu"] = f"{request.memory_per_cpu_mib}M"
    if request.exclusive:
        found["exclusive"] = "yes"
    if request.place != "free" or any(name != GPU for name, _ in request.per_task):
        found["rset"] = ""
    for option in devices_option(request).split("--")[1:]:
        name, _, value = option.strip().partition(" ")
        found[name] = value
    return found


def asked_words(request: Request) -> tuple[str, ...]:
    """The request as `option=value` words in a fixed order; empty when options cannot express it."""
    return tuple([f"{option}={value}" for option, value in (asked(request) or {}).items()])


def update_words(old: JobSpec, new: JobSpec) -> str:
    """Arguments of `esctl update job N` that change its request to `new`, quoted for a shell; "" when none do."""
    before, after = asked(old.components[0]), asked(new.components[0])
    if before is None or after is None:
        return ""
    found: dict[str, str] = {}
    if new.partition != old.partition:
        found["partition"] = new.partition
    if new.time_limit_s != old.time_limit_s:
        found["time"] = clock(new.time_limit_s)
    if new.reservation != old.reservation:
        found["reservation"] = new.reservation
    for option in _differing(before, after):
        # Chunks say instead what was said with tasks.
        if "rset" in after and option not in after and option not in _BESIDE_CHUNKS:
            continue
        found[option] = after.get(option, "no" if option == "exclusive" else "")
    return " ".join([f"{option}={_quoted(value)}" for option, value in found.items()])


def differing(old: Request, new: Request) -> list[str]:
    """The options in which two requests differ."""
    return _differing(asked(old) or {}, asked(new) or {})


def _differing(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return [one for one in dict.fromkeys([*after, *before]) if after.get(one) != before.get(one)]


def _quoted(value: str) -> str:
    if _PLAIN.issuperset(value):
        return value
    inside = value.replace("'", "'\"'\"'")
    return f"'{inside}'"


def _number(request: Request, resource: str, items: int) -> str:
    kind = type_in(request.constraint, resource)
    return f"{kind}:{items}" if kind else str(items)


def wide_option(wide: Iterable[tuple[str, int]]) -> str:
    """`--licenses matlab:2,ansys:1`."""
    return f"--licenses {_amounts(wide)}"


def _amounts(named: Iterable[tuple[str, int]]) -> str:
    return ",".join(f"{name}:{items}" for name, items in named)


def constraint_option(rest: Sequence[str]) -> str:
    """The option for exactly these terms."""
    return f"--constraint '{'&'.join(rest)}'" if rest else "without --constraint"


def rset_option(request: Request) -> str:
    """`--rset '8:ncpus=2:mem=1024m+1:ncpus=16:gpus=2,place=scatter:excl'`; "" when chunks cannot express it.

    Single features of the whole job are in it, since they may have come with it; what else `--constraint` says is not.
    """
    text = rset_text(request)
    for term in terms(request.constraint) if text else ():
        word = _word(term)
        text += f",{word}" if word else ""
    return f"--rset '{text}'" if text else ""


def rset_text(request: Request) -> str:
    """The chunks and their place, without features of the whole job; "" when chunks cannot express it."""
    chunks = [_chunk_text(chunk) for chunk in request.chunks]
    if not all(chunks):
        return ""
    place = [request.place] if request.place != "free" else []
    if request.exclusive:
        place.append("excl")
    return "+".join(chunks) + (f",place={':'.join(place)}" if place else "")


def _chunk_text(chunk: Chunk) -> str:
    words = [f"{chunk.count}", f"ncpus={chunk.cores}"]
    if chunk.memory_mib:
        words.append(f"mem={chunk.memory_mib}m")
    words += [f"{'gpus' if name == GPU else name}={items}" for name, items in chunk.resources]
    for term in terms(chunk.constraint):
        word = f"gpu_type={term.removeprefix('gpu:')}" if term.startswith("gpu:") else _word(term)
        if not word or ":" in word:
            return ""
        words.append(word)
    return ":".join(words)


def _word(term: str) -> str:
    """`rack=1`, `ib=true`, `old=false`; "" for an expression."""
    feature = term.removeprefix("!")
    name, equals, value = feature.partition("=")
    if not name or name in _AMOUNTS or any(char in _NO_WORD for char in feature):
        return ""
    if not equals:
        return f"{name}={'true' if term == feature else 'false'}"
    # Not to have a value is more than a word can say.
    return term if term == feature and value and value.lower() not in ("true", "false") else ""
