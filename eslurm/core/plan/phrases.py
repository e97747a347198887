"""What a request asks for, in the words of the options that ask for it: `--rset`, `--gpus-per-node`, `--gres`, `--time`.

Invariant: an option written here, read as the commands read it, asks for what it was written from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from eslurm.core.job.request import Chunk, Request
from eslurm.core.words import counted

GPU: Final = "gpu"
_NO_WORD: Final = frozenset("|!(), &")
_AMOUNTS: Final = frozenset(("ncpus", "cores", "cpus", "mem", "memory", "gpus", "ngpus", "gpu", "place"))
"""What `--rset` does not take for a feature."""


def terms(constraint: str) -> list[str]:
    """What all has to be true for the expression to be: `a&(b|c)` is a and (b|c), `a|b` is one term."""
    found: list[str] = []
    depth = start = 0
    for at, char in enumerate(constraint):
        depth += (char == "(") - (char == ")")
        if depth == 0 and char == "|":
            return [constraint.strip()]
        if depth == 0 and char in "&,":
            found.append(constraint[start:at])
            start = at + 1
    found.append(constraint[start:])
    return [term.strip() for term in found if term.strip()]


def type_in(constraint: str, resource: str) -> str:
    """The type of a resource that an expression asks for (`a100` of `ib&gpu:a100`); "" for any."""
    prefix = f"{resource}:"
    for term in terms(constraint):
        if term.startswith(prefix) and not any(char in _NO_WORD for char in term):
            return term.removeprefix(prefix)
    return ""


def items_words(items: int, resource: str) -> str:
    """`2 GPUs`, `1 GPU`, `3 fpga`."""
    return counted(items, "GPU") if resource == GPU else f"{items} {resource}"


def clock(seconds: int) -> str:
    """As `--time` reads it: `4:00:00`, `1-12:00:00`."""
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


def _number(request: Request, resource: str, items: int) -> str:
    kind = type_in(request.constraint, resource)
    return f"{kind}:{items}" if kind else str(items)


def wide_option(wide: Iterable[tuple[str, int]]) -> str:
    """`--licenses matlab:2,ansys:1`."""
    return f"--licenses {','.join(f'{name}:{items}' for name, items in wide)}"


def constraint_option(rest: Sequence[str]) -> str:
    """How to ask for these terms and no others."""
    return f"--constraint '{'&'.join(rest)}'" if rest else "without --constraint"


def rset_option(request: Request) -> str:
    """`--rset '8:ncpus=2:mem=1024m+1:ncpus=16:gpus=2,place=scatter:excl'`; "" for what no chunk can say.

    Single features of the whole job are in it, since they may have come with it; what else `--constraint` says is not.
    """
    chunks = [_chunk_text(chunk) for chunk in request.chunks]
    if not all(chunks):
        return ""
    text = "+".join(chunks)
    place = [request.place] if request.place != "free" else []
    if request.exclusive:
        place.append("excl")
    if place:
        text += f",place={':'.join(place)}"
    for term in terms(request.constraint):
        word = _word(term)
        text += f",{word}" if word else ""
    return f"--rset '{text}'"


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
