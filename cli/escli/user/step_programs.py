"""Reads what `esrun` shall run: a program, or one for each part of a job of several parts (`esrun A : B`).

`:` separates programs, each with its own -n, -N and -c; `--het-group` names their parts. Without it one program runs in part
0, and several run in parts 0, 1, 2 and so on. A program without a command runs the next one's command, as with srun.
"""

from __future__ import annotations

from escli.option_table import rows_of
from escli.options import Parser
from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.hetgroups import parse_het_group

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from escli.options import Words

SYNONYMS = {"het-group": ("pack-group",), "pack-group": ("het-group",)}
"""Of two spellings the later one counts."""
EXCLUDES = {**SYNONYMS, "mem": ("mem-per-cpu",), "mem-per-cpu": ("mem",)}
_OF_A_PROGRAM = frozenset({"ntasks", "nodes", "cpus-per-task", *SYNONYMS})


class PartProgram:
    """A program in one part. `tasks` and `nodes` are 0 where the controller says how many; they are `open` where the
    job's environment says it, which is that of its start.
    """

    __slots__ = ("argv", "component", "cpus_per_task", "nodes", "nodes_open", "tasks", "tasks_open")

    def __init__(
        self,
        component: int,
        argv: Sequence[str],
        tasks: int,
        nodes: int,
        cpus_per_task: int,
        *,
        tasks_open: bool = False,
        nodes_open: bool = False,
    ) -> None:
        self.component = component
        self.argv = tuple(argv)
        self.tasks = tasks
        self.nodes = nodes
        self.cpus_per_task = cpus_per_task
        self.tasks_open = tasks_open
        self.nodes_open = nodes_open


def read_programs(given: Words, environ: Mapping[str, str]) -> list[PartProgram]:
    """The programs in the order of their parts. Sizes come from the options, else from the surrounding job.

    Raises OptionError.
    """
    programs = _separated(given)
    if not programs[-1].rest:
        raise OptionError("COMMAND", None, "is missing", "use e.g. esrun hostname")
    found: list[PartProgram] = []
    for at, (words, components) in enumerate(zip(programs, _components(programs), strict=True)):
        argv = next(after.rest for after in programs[at:] if after.rest)
        found += [
            _program(words, component, argv, environ, given.has("nodelist")) for component in components
        ]
    return sorted(found, key=lambda one: one.component)


def _separated(given: Words) -> list[Words]:
    """The words of each program: the first has the options of the whole step, too."""
    texts: list[list[str]] = [[]]
    for word in given.rest:
        if word == ":":
            texts.append([])
        else:
            texts[-1].append(word)
    given.rest = texts[0]
    parser = Parser(rows_of("esrun"), options_end_at_first_word=True, excludes=EXCLUDES)
    found = [given]
    for text in texts[1:]:
        words = parser.parse(text)
        for long in words.names():
            if long not in _OF_A_PROGRAM:
                raise OptionError(
                    words.spelling(long),
                    None,
                    "is for the whole step and stands behind ':'",
                    "give it before the first program",
                )
        found.append(words)
    return found


def _components(programs: Sequence[Words]) -> list[tuple[int, ...]]:
    """The parts of each program. One list before the first program may name a part for each."""
    lists = [_named(words) for words in programs]
    size = len(programs)
    if not any(lists):
        return [(at,) for at in range(size)]
    spelling = next(_spelling(words) for words, named in zip(programs, lists, strict=True) if named)
    if lists[0] and not any(lists[1:]) and size > 1:
        if len(lists[0]) != size:
            text = programs[0].text(spelling.removeprefix("--"))
            raise OptionError(
                spelling, text, f"names {len(lists[0])} parts for {size} programs", "name one part for each"
            )
        return [(one,) for one in lists[0]]
    if not all(lists):
        raise OptionError(
            spelling, None, "is given for some programs only", "give it once before the first, or for each"
        )
    every = [one for named in lists for one in named]
    if twice := [one for one in every if every.count(one) > 1]:
        raise OptionError(
            spelling, str(twice[0]), "is the part of two programs", "give each part one program"
        )
    return lists


def _spelling(words: Words) -> str:
    return words.spelling("pack-group" if words.has("pack-group") else "het-group")


def _named(words: Words) -> tuple[int, ...]:
    long = "pack-group" if words.has("pack-group") else "het-group"
    return parse_het_group(words.text(long), words.spelling(long)) if words.has(long) else ()


def _program(
    words: Words, component: int, argv: Sequence[str], environ: Mapping[str, str], is_named: bool
) -> PartProgram:
    """`is_named`: the step has names of nodes."""
    nodes = _count(words, "nodes")
    tasks = _count(words, "ntasks")
    if is_named:
        # As many tasks as named nodes, whatever the job has.
        return PartProgram(component, argv, tasks, nodes, _count(words, "cpus-per-task") or 1)
    tasks_open, nodes_open = not tasks and not nodes, not nodes
    if not tasks:
        tasks = nodes or _of_job(environ, "NTASKS", component)
    if tasks and tasks < nodes:
        raise OptionError(
            words.spelling("ntasks"),
            str(tasks),
            f"tasks cannot fill {nodes} nodes",
            f"use -n {nodes} or more",
        )
    if not nodes and tasks:
        nodes = min(tasks, _of_job(environ, "NNODES", component))
    cpus = _count(words, "cpus-per-task") or 1
    return PartProgram(component, argv, tasks, nodes, cpus, tasks_open=tasks_open, nodes_open=nodes_open)


def _of_job(environ: Mapping[str, str], name: str, component: int) -> int:
    """The part's number of tasks or nodes. Of part 0 of a surrounding job it is at least 1; 0: it is not known here."""
    text = environ.get(f"ESLURM_{name}_HET_GROUP_{component}", "")
    if not text and not component:
        text = environ.get(f"ESLURM_{name}", "1" if environ else "0")
        return max(1 if environ else 0, whole_number(text))
    return max(0, whole_number(text))


def _count(words: Words, long: str) -> int:
    if not words.has(long):
        return 0
    number = whole_number(words.text(long), 9)
    if number <= 0:
        raise OptionError(
            words.spelling(long), words.text(long), "is not a number from 1 on", f"use e.g. --{long} 4"
        )
    return number
