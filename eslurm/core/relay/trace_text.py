"""A trace as text: the cost of each level, and the tree with slow and suspect nodes first.

Invariant: folded spans are counted in their line, and so are the suspects below them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from eslurm.core.relay.trace import DONE, LOCAL, NEVER_US, ROOT, Trace, TraceSpan

NameOf = Callable[[int], str]

BRANCHES_SHOWN: Final = 8
NAMES_SHOWN: Final = 3
INDENT: Final = "  "
MARK: Final = "! "


def render(trace: Trace, name_of: NameOf) -> str:
    """The levels as a table, then the tree. `name_of` knows nodes and satellites; the root needs no name."""
    lines = [*_level_lines(trace), ""]
    tree = _Tree(trace.spans, name_of)
    lines.append("controller")
    lines += tree.lines(ROOT)
    for parent in tree.orphans():
        lines.append(f"{name_of(parent)} (how it got its list was left out)")
        lines += tree.lines(parent)
    if trace.omitted:
        lines.append(f"{trace.omitted} more lists are counted above but not shown: they were the fastest.")
    return "\n".join(lines)


def _level_lines(trace: Trace) -> Iterable[str]:
    yield f"{'LEVEL':>5}  {'LISTS':>7}  {'ADOPTED':>7}  {'ACK MEAN':>9}  {'ACK MAX':>9}  {'DONE MAX':>9}"
    for level in trace.levels:
        mean_us = level.acked_sum_us // max(1, level.sends)
        times = "  ".join(f"{_time(us):>9}" for us in (mean_us, level.acked_max_us, level.done_max_us))
        yield f"{level.hop:>5}  {level.sends:>7}  {level.adopted:>7}  {times}"


class _Tree:
    """The spans by parent, and the number of suspects below each child."""

    def __init__(self, spans: Iterable[TraceSpan], name_of: NameOf) -> None:
        self._name_of = name_of
        self._below: dict[int, list[TraceSpan]] = {}
        self._parents: dict[int, int] = {}
        self._suspects: Counter[int] = Counter()
        for span in spans:
            self._below.setdefault(span.parent, []).append(span)
            self._parents[span.child] = span.parent
            if span.is_trouble:
                self._suspects[span.child] += 1
        for child, count in list(self._suspects.items()):
            for above in self._way_up(child):
                self._suspects[above] += count

    def orphans(self) -> list[int]:
        """Parents whose own sender is unknown."""
        return sorted(parent for parent in self._below if parent != ROOT and parent not in self._parents)

    def lines(self, top: int) -> list[str]:
        """Depth first without recursion: spans from the network may form a chain of any length, or a cycle."""
        lines: list[str] = []
        seen = {top}
        pending = [(1, item) for item in reversed(self._items(top))]
        while pending:
            depth, item = pending.pop()
            if isinstance(item, str):
                lines.append(INDENT * depth + item)
                continue
            lines.append(INDENT * depth + _line(item, self._name_of))
            if item.child not in seen:
                seen.add(item.child)
                pending += [(depth + 1, below) for below in reversed(self._items(item.child))]
        return lines

    def _way_up(self, child: int) -> Iterable[int]:
        seen = {child}
        while (above := self._parents.get(child)) is not None and above not in seen:
            seen.add(above)
            yield above
            child = above

    def _items(self, parent: int) -> list[TraceSpan | str]:
        """The children of `parent`: branches one by one, the worst first, then leaves of a kind in one line."""
        branches: list[TraceSpan] = []
        leaves: dict[str, list[TraceSpan]] = {}
        for span in self._below.get(parent, ()):
            if span.child in self._below:
                branches.append(span)
            else:
                leaves.setdefault(span.how, []).append(span)
        branches.sort(key=self._worst_first)
        items: list[TraceSpan | str] = list(branches[:BRANCHES_SHOWN])
        folded = branches[BRANCHES_SHOWN:]
        if folded:
            nodes = sum(span.nodes for span in folded)
            suspects = sum(self._suspects[span.child] for span in folded)
            what = f"branches, {nodes} nodes with {suspects} suspects"
            items.append(_folded(folded, what, suspects > 0, self._name_of))
        for how in sorted(leaves, key=_trouble_first):
            kind = leaves[how]
            kind.sort(key=_slowest_first)
            is_trouble = kind[0].is_trouble
            items.append(
                kind[0] if len(kind) == 1 else _folded(kind, f"lists {how}", is_trouble, self._name_of)
            )
        return items

    def _worst_first(self, span: TraceSpan) -> tuple[int, tuple[bool, int, int]]:
        return (-self._suspects[span.child], _slowest_first(span))


def _slowest_first(span: TraceSpan) -> tuple[bool, int, int]:
    return (not span.is_trouble, -max(span.done_us, span.acked_us), span.child)


def _trouble_first(how: str) -> tuple[bool, str]:
    return (how in (DONE, LOCAL), how)


def _line(span: TraceSpan, name_of: NameOf) -> str:
    mark = MARK if span.is_trouble else ""
    size = f"{span.nodes} node{'s' if span.nodes != 1 else ''}"
    if span.how == LOCAL:
        return f"{mark}{name_of(span.child)}  {size}, in the same process"
    return (
        f"{mark}{name_of(span.child)}  {size}, ack {_time(span.acked_us)}, done {_time(span.done_us)}"
        f"{'' if span.how == DONE else ', ' + span.how}"
    )


def _folded(spans: Sequence[TraceSpan], what: str, is_trouble: bool, name_of: NameOf) -> str:
    """One line for several spans."""
    mark = MARK if is_trouble else ""
    names = ", ".join(name_of(span.child) for span in spans[:NAMES_SHOWN])
    more = f" and {len(spans) - NAMES_SHOWN} more" if len(spans) > NAMES_SHOWN else ""
    acked_us = max(span.acked_us for span in spans)
    done_us = max(span.done_us for span in spans)
    return f"{mark}{len(spans)} {what}: {names}{more}; slowest ack {_time(acked_us)}, done {_time(done_us)}"


def _time(us: int) -> str:
    if us == NEVER_US:
        return "never"
    if us < 1_000:
        return f"{us} us"
    return f"{us / 1_000:.1f} ms" if us < 1_000_000 else f"{us / 1_000_000:.2f} s"
