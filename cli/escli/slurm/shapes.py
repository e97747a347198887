"""Options of sbatch about the shape of a job that essubmit has not: amounts for each GPU, least sizes of nodes, switches.

Each becomes tasks, cores and memory that mean the same, or is refused where none do. Invariant: nothing is rounded.
"""

from __future__ import annotations

from escli.user.draft_resources import GPU_OPTIONS, positive
from eslurm.compat.durations import parse_time_limit
from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.gres import GPU, parse_gpus, parse_gres
from eslurm.compat.nodecounts import parse_node_count
from eslurm.compat.sizes import parse_memory
from eslurm.compat.slurm.sbatch_options import SHAPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from escli.options import Words

_EVENLY = "cannot be shared out evenly"


def settle(words: Words) -> None:
    """Replace these options of a job, or of one of its parts. Raises OptionError."""
    given = [long for long in SHAPES if words.has(long)]
    for long in given:
        if long == "ntasks-per-gpu":
            _tasks_per_gpu(words)
        elif long == "cpus-per-gpu":
            _cpus_per_gpu(words)
        elif long == "mem-per-gpu":
            _memory_per_gpu(words)
        elif long in ("mincpus", "sockets-per-node", "extra-node-info"):
            _check_cores(words, long)
        elif long in ("switches", "contiguous"):
            _check_nodes(words, long)
        else:
            _check_least_time(words)
    words.drop(given)


class _Shape:
    """Numbers of nodes, tasks and cores that the options say; 0: none."""

    __slots__ = ("cpus", "nodes", "nodes_max", "per_node", "tasks")

    def __init__(self, words: Words) -> None:
        nodes = (
            parse_node_count(words.text("nodes"), words.spelling("nodes")) if words.has("nodes") else (0, 0)
        )
        self.nodes = nodes[0] if nodes[0] == nodes[1] else 0
        """The number of nodes, where it is fixed."""
        self.nodes_max = nodes[1]
        self.tasks = positive(words, "ntasks")
        self.per_node = positive(words, "ntasks-per-node")
        self.cpus = positive(words, "cpus-per-task") or 1
        if not nodes[1] and self.tasks <= 1:
            self.nodes = self.nodes_max = 1

    @property
    def on_each_node(self) -> int:
        """The number of tasks on each node, where all nodes have the same; 0: that is not known."""
        if self.nodes and self.tasks:
            return (
                self.tasks // self.nodes
                if self.tasks == self.nodes * (self.per_node or 1) or self.nodes == 1
                else 0
            )
        return self.per_node or (0 if self.tasks else 1)


class _Gpus:
    """The GPUs that a job asks for: of each node, or with each task."""

    __slots__ = ("per_node", "per_task")

    def __init__(self, words: Words, shape: _Shape, long: str) -> None:
        self.per_node = self.per_task = 0
        asked = next((one for one in GPU_OPTIONS if words.has(one)), "")
        if not asked:
            entries = parse_gres(words.text("gres"), words.spelling("gres")) if words.text("gres") else ()
            self.per_node = next((count for name, _, count in entries if name == GPU), 0)
            if not self.per_node:
                raise OptionError(
                    words.spelling(long), words.text(long), "needs GPUs", "add e.g. --gpus-per-node 2"
                )
            return
        _, count = parse_gpus(words.text(asked), words.spelling(asked))
        if asked == "gpus-per-task":
            self.per_task = count
        elif asked == "gpus-per-node":
            self.per_node = count
        elif words.has("nodes"):
            if not shape.nodes or count % shape.nodes:
                raise _uneven(words, long, "--gpus", "use --gpus-per-node")
            self.per_node = count // shape.nodes
        else:
            tasks = shape.tasks or 1
            if count % tasks:
                raise _uneven(words, long, "--gpus", "use --gpus-per-task")
            self.per_task = count // tasks


def _tasks_per_gpu(words: Words) -> None:
    """`--ntasks-per-gpu`: the GPUs say the number of tasks, or tasks that of GPUs."""
    each, shape = positive(words, "ntasks-per-gpu"), _Shape(words)
    _exclude(words, "ntasks-per-gpu", "ntasks-per-node", "gpus-per-task")
    spelling = words.spelling("ntasks-per-gpu")
    if not words.has("gpus") and not words.has("gpus-per-node") and not words.has("gres"):
        if not shape.tasks or shape.tasks % each:
            raise _uneven(words, "ntasks-per-gpu", f"{shape.tasks} tasks", "name GPUs: --gpus-per-node 2")
        words.put("gpus", str(shape.tasks // each), spelling)
        return
    if words.has("gpus") and not words.has("nodes"):
        total = parse_gpus(words.text("gpus"), words.spelling("gpus"))[1] * each
    else:
        gpus = _Gpus(words, shape, "ntasks-per-gpu").per_node
        if not shape.nodes:
            raise OptionError(
                spelling, words.text("ntasks-per-gpu"), "needs a number of nodes", "add e.g. -N 2"
            )
        words.put("ntasks-per-node", str(gpus * each), spelling)
        total = gpus * each * shape.nodes
    if shape.tasks and shape.tasks != total:
        text = f"makes {total} tasks of these GPUs, not {shape.tasks}"
        raise OptionError(spelling, words.text("ntasks-per-gpu"), text, "leave -n out")
    words.put("ntasks", str(total), spelling)


def _cpus_per_gpu(words: Words) -> None:
    _exclude(words, "cpus-per-gpu", "cpus-per-task")
    each, shape = positive(words, "cpus-per-gpu"), _Shape(words)
    gpus = _Gpus(words, shape, "cpus-per-gpu")
    if gpus.per_task:
        cpus = each * gpus.per_task
    else:
        tasks = shape.on_each_node
        if not tasks or each * gpus.per_node % tasks:
            raise _uneven(words, "cpus-per-gpu", "its cores", "use --cpus-per-task with --ntasks-per-node")
        cpus = each * gpus.per_node // tasks
    words.put("cpus-per-task", str(cpus), words.spelling("cpus-per-gpu"))


def _memory_per_gpu(words: Words) -> None:
    _exclude(words, "mem-per-gpu", "mem", "mem-per-cpu")
    spelling, shape = words.spelling("mem-per-gpu"), _Shape(words)
    each = parse_memory(words.text("mem-per-gpu"), spelling)
    gpus = _Gpus(words, shape, "mem-per-gpu")
    if not each:
        raise OptionError(spelling, words.text("mem-per-gpu"), "is no amount", "name one, or use --mem=0")
    if gpus.per_node:
        words.put("mem", f"{each * gpus.per_node}M", spelling)
    elif each * gpus.per_task % shape.cpus:
        raise _uneven(words, "mem-per-gpu", "its memory", "use --mem")
    else:
        words.put("mem-per-cpu", f"{each * gpus.per_task // shape.cpus}M", spelling)


def _check_cores(words: Words, long: str) -> None:
    """Check that each node gives so many cores anyway: a core is a socket of its own, with one thread."""
    text, shape = words.text(long), _Shape(words)
    least, *below = text.split(":")
    if long != "extra-node-info":
        count = positive(words, long)
    elif len(below) > 2 or any(one not in ("*", "1") for one in below):
        raise OptionError(
            words.spelling(long), text, "is none of N, N:1, N:1:1", "cores have one thread: use -c"
        )
    else:
        count = 1 if least == "*" else whole_number(least, 9)
    gives = shape.cpus * max(1, shape.on_each_node)
    if not 0 < count <= gives:
        raise OptionError(
            words.spelling(long),
            text,
            f"is not from 1 to {gives}, the cores of each node",
            "use --ntasks-per-node with -c",
        )


def _check_nodes(words: Words, long: str) -> None:
    """Check that so few nodes are always under so many switches, and side by side."""
    shape = _Shape(words)
    text = words.text(long)
    count = whole_number(text.partition("@")[0], 9) if long == "switches" else 1
    if count < 1 or count < (shape.nodes_max or shape.tasks):
        raise OptionError(
            words.spelling(long),
            text or None,
            "is for more nodes than can be promised",
            "leave it out: nodes of a job stay under one switch where they fit",
        )


def _check_least_time(words: Words) -> None:
    """Check `--time-min`, which lets a scheduler lower the limit: this one never does."""
    least = parse_time_limit(words.text("time-min"), words.spelling("time-min"))
    most = parse_time_limit(words.text("time"), words.spelling("time")) if words.has("time") else 0
    if not least or (most and least > most):
        raise OptionError(
            words.spelling("time-min"), words.text("time-min"), "is more than --time", "lower it"
        )


def _exclude(words: Words, long: str, *others: str) -> None:
    for other in others:
        if words.has(other):
            raise OptionError(
                words.spelling(long), words.text(long), f"excludes --{other}", "give one of them"
            )


def _uneven(words: Words, long: str, what: str, way_out: str) -> OptionError:
    return OptionError(words.spelling(long), words.text(long), f"{what} {_EVENLY}", way_out)
