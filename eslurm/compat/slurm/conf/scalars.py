"""The keys of slurm.conf that are alone: scheduling, limits, programs around jobs, access.

Invariant: of a key that is given several times the last counts, and the others are reported.
"""

from __future__ import annotations

from eslurm.compat.durations import parse_time_limit
from eslurm.compat.errors import OptionError, nearest, whole_number
from eslurm.compat.slurm.conf.draft import CHANGED, LEFT, WITHOUT
from eslurm.compat.slurm.conf.keys import GENERAL, NO, NONE, ONLY, WORDS, YES
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.request_limits import ARRAY_TASKS_MAX, SCRIPT_BYTES_MAX
from eslurm.core.model.timekeeping import lost_after_min_s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from eslurm.compat.slurm.conf.draft import Draft
    from eslurm.compat.slurm.conf.keys import Row
    from eslurm.compat.slurm.conf.lines import Line, Pair

    Setting: TypeAlias = tuple[Line, Pair]

PORT = 7400
_SEVERAL = frozenset({"slurmctldhost", "nodeset", "prolog", "epilog"})
"""Keys of which Slurm takes several."""
_YES = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
_HOSTS = ("slurmctldhost", "controlmachine", "backupcontroller")
_ADDRESSES = ("controladdr", "backupaddr")
_MODES = {"off": "off", "cancel": "cancel", "requeue": "requeue", "suspend": "suspend"}
_SCHEDULERS = {"sched/backfill": "conservative", "sched/builtin": "fcfs"}
_WEIGHTS = ("age", "fairshare", "size", "partition", "qos")
_SUSPECT_BEATS = 3
"""Heartbeats that `policy.orphan_timeout_s` has to last at least."""


class Scalars:
    """The single keys of a site, which the sections of nodes and partitions also ask for."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._given: dict[str, list[Setting]] = {}

    def add(self, line: Line) -> None:
        """Take in a line."""
        for pair in line.pairs:
            self._given.setdefault(pair.key.lower(), []).append((line, pair))

    def last(self, name: str) -> Setting | None:
        """The setting of a key that counts."""
        found = self._given.get(name.lower())
        return found[-1] if found else None

    def value(self, name: str, default: str = "") -> str:
        """The value of a key."""
        found = self.last(name)
        return found[1].value if found else default

    def convert(self) -> None:
        """Convert all keys but those that other sections ask for."""
        draft = self._draft
        for name, settings in self._given.items():
            row = GENERAL.get(name)
            for line, pair in settings[:-1] if name not in _SEVERAL else ():
                draft.add(LEFT, line, pair, "is given again below, which counts: give it once")
            line, pair = settings[-1]
            if row is None:
                near = nearest(name, GENERAL)
                meant = f"did you mean {GENERAL[near].name}?" if near else "see what it does in slurm.conf(5)"
                draft.add(LEFT, line, pair, f"is no key that is known here: {meant}")
            elif row.name in WORDS:
                self._words(row.name, line, pair)
            else:
                treat(draft, row, line, pair)
        self._hosts()
        self._programs()
        self._scheduling()
        self._losses()

    def _words(self, name: str, line: Line, pair: Pair) -> None:
        table = WORDS[name]
        for word in filter(None, (one.strip() for one in pair.value.split(","))):
            head, _, value = word.partition("=")
            row = table.get(head.lower())
            inner, given = type(pair)(pair.key, word), type(pair)(pair.key, value)
            if row is None:
                near = nearest(head, [one.name for one in table.values()])
                self._draft.add(
                    LEFT, line, inner, f"is unknown here{f': did you mean {near}?' if near else ''}"
                )
            elif row.how != YES:
                treat(self._draft, row, line, inner if row.how in (NONE, NO, ONLY) else given)
            elif name == "AccountingStorageEnforce":
                self._draft.set("policy", "accounts_enforced", True)
            elif name == "PrivateData":
                private = self._draft.get("privacy", "private", [])
                self._draft.set("privacy", "private", [*private, row.name])
            elif row.name == "max_array_tasks":
                _set_count(self._draft, "array_tasks_max", ARRAY_TASKS_MAX, line, given)
            elif row.name == "max_script_size":
                _set_count(self._draft, "script_bytes_max", SCRIPT_BYTES_MAX, line, given)

    def _hosts(self) -> None:
        hosts = [one for name in _HOSTS for one in self._given.get(name, ())]
        if not hosts:
            return
        self._draft.set("controller", "listen", f"0.0.0.0:{PORT}")
        line, pair = hosts[0]
        self._draft.add(
            CHANGED,
            line,
            pair,
            f"a controller listens at all its addresses, port {PORT}: see controller.listen",
        )
        for line, pair in hosts[1:]:
            self._draft.add(
                CHANGED,
                line,
                pair,
                "start a standby there on a store that both reach: docs/guide/hot-standby.md",
            )
        for line, pair in (one for name in _ADDRESSES for one in self._given.get(name, ())):
            self._draft.add(WITHOUT, line, pair, f"a controller listens at all its addresses, port {PORT}")

    def _programs(self) -> None:
        draft = self._draft
        for name, key in (
            ("Prolog", "prolog"),
            ("Epilog", "epilog"),
            ("TaskProlog", "task_prolog"),
            ("TaskEpilog", "task_epilog"),
        ):
            settings = [one for one in self._given.get(name.lower(), ()) if one[1].value.lower() != "none"]
            for line, pair in settings[1:]:
                draft.add(LEFT, line, pair, "there is one such program: call this one from it")
            for line, pair in settings[:1]:
                if not pair.value.startswith("/") or set("*?[") & set(pair.value):
                    draft.add(
                        LEFT, line, pair, "is no single program: name one from / on, which calls others"
                    )
                    continue
                draft.set("agent", key, pair.value)
                option = f"--{key.replace('_', '-')}"
                draft.add(
                    CHANGED,
                    line,
                    pair,
                    f"of agents that `eslurm up` starts; give others esnoded {option} {pair.value}",
                )
        for name in ("PrologTimeout", "EpilogTimeout", "PrologEpilogTimeout"):
            found = self.last(name)
            if found is None:
                continue
            seconds = whole_number(found[1].value, 10)
            if not 1 <= seconds <= 86_400:
                draft.add(LEFT, *found, "is not a number of seconds from 1 to 86400: the limit stays 300")
                continue
            draft.set("agent", "phase_limit_s", max(seconds, draft.get("agent", "phase_limit_s", 0)))
            draft.set("phases", "controller_limit_s", draft.get("agent", "phase_limit_s", 0))

    def _scheduling(self) -> None:
        draft = self._draft
        found = self.last("SchedulerType")
        if found is not None:
            policy = _SCHEDULERS.get(found[1].value.lower())
            if policy:
                draft.set("policy", "scheduler", policy)
            else:
                draft.add(LEFT, *found, "is unknown here: use sched/backfill or sched/builtin")
        found = self.last("PriorityType")
        if found is not None and found[1].value.lower() not in ("priority/basic", "priority/multifactor"):
            draft.add(LEFT, *found, "is unknown here: use priority/basic or priority/multifactor")
        elif found is not None and found[1].value.lower() == "priority/basic":
            weights = [key for key in _WEIGHTS if draft.sections.get("priority", {}).pop(key, 0)]
            if weights:
                draft.add(
                    CHANGED,
                    *found,
                    f"computes no priorities: the weights of {', '.join(weights)} are left out",
                )
        found = self.last("PreemptType")
        if found is not None and found[1].value.lower() not in (
            "preempt/none",
            "preempt/partition_prio",
            "preempt/qos",
        ):
            draft.add(
                LEFT, *found, "is unknown here: use preempt/none, preempt/partition_prio or preempt/qos"
            )
        elif found is not None and found[1].value.lower() == "preempt/qos":
            draft.add(
                CHANGED,
                *found,
                "a QOS says what it preempts: esctl qos modify NAME preempts=, or --assoc DUMP",
            )

    @property
    def preempts_by_partition(self) -> bool:
        """Check whether partitions preempt each other."""
        return self.value("PreemptType").lower() == "preempt/partition_prio"

    def _losses(self) -> None:
        """Nodes end their orphaned jobs before the controller gives the nodes up, whatever the site has set."""
        draft, usual = self._draft, ClusterConfig("usual")
        kill_s = draft.get("policy", "kill_grace_s", usual.kill_grace_s)
        orphan_s, lost_s = usual.orphan_timeout_s, usual.node_lost_after_s
        found = self.last("SlurmdTimeout")
        wanted_s = whole_number(found[1].value, 9) if found else -1
        if found and wanted_s < 0:
            draft.add(LEFT, *found, "is not a number of seconds: see policy.node_lost_after_s")
        elif found and wanted_s == 0:
            draft.add(LEFT, *found, "nodes are given up at some time: see policy.node_lost_after_s")
        elif found:
            lost_s = float(wanted_s)
            orphan_s = min(orphan_s, float(int(lost_s / 2 - kill_s)))
            if orphan_s < _SUSPECT_BEATS * usual.heartbeat_s:
                orphan_s = _SUSPECT_BEATS * usual.heartbeat_s
        lost_min_s = lost_after_min_s(orphan_s + kill_s)
        if lost_s <= lost_min_s:
            lost_s = float(int(lost_min_s) + 1)
            if found and wanted_s > 0:
                draft.add(
                    CHANGED,
                    *found,
                    f"would lose nodes whose jobs may still run: policy.node_lost_after_s is {lost_s:g}",
                )
        if orphan_s != usual.orphan_timeout_s:
            draft.set("policy", "orphan_timeout_s", orphan_s)
        if lost_s != usual.node_lost_after_s:
            draft.set("policy", "node_lost_after_s", lost_s)


def treat(draft: Draft, row: Row, line: Line, pair: Pair) -> None:
    """Do what a table says for a key that needs no code of its own."""
    if row.how == NONE or (row.how == ONLY and pair.value.strip().lower() in row.values):
        draft.add(WITHOUT, line, pair, row.note)
    elif row.how in (NO, ONLY):
        draft.add(LEFT, line, pair, row.note)
    elif row.how != YES:
        try:
            _to(draft, row.detail, line, pair)
        except OptionError as error:
            draft.refuse(line, pair, error)
        else:
            if row.note:
                draft.add(CHANGED, line, pair, row.note)


def _to(draft: Draft, detail: str, line: Line, pair: Pair) -> None:
    target, reader, *bounds = detail.split(":")
    section, _, key = target.partition(".")
    low, high = map(int, bounds[0].split("-")) if bounds else (0, 0)
    if reader == "most":
        _set_count(draft, key, ARRAY_TASKS_MAX, line, pair)
        return
    draft.set(section, key, _READERS[reader](pair.value, pair.key, low, high))


def _set_count(draft: Draft, key: str, highest: int, line: Line, pair: Pair) -> None:
    count, lowest = whole_number(pair.value, 12), 1024 if key == "script_bytes_max" else 1
    if count < 0:
        draft.add(LEFT, line, pair, f"is not a number: see policy.{key}")
        return
    draft.set("policy", key, min(max(count, lowest), highest))
    if not lowest <= count <= highest:
        draft.add(CHANGED, line, pair, f"is from {lowest} to {highest} here: policy.{key}")


def _whole(text: str, key: str, low: int, high: int) -> int:
    number = whole_number(text.strip(), 12)
    if not low <= number <= high:
        raise OptionError(key, text, f"is not a number from {low} to {high}", "see the configuration")
    return number


def _number(text: str, key: str, low: int, high: int) -> float:
    return float(_whole(text, key, low, high))


def _span(text: str, key: str, low: int, high: int) -> int:
    seconds = parse_time_limit(text.strip(), key)
    if not low <= seconds <= high:
        raise OptionError(key, text, f"is not from {low} to {high} seconds", "see the configuration")
    return seconds


def read_yes(text: str, key: str, low: int = 0, high: int = 0) -> bool:
    """A choice of slurm.conf. Raises OptionError."""
    found = _YES.get(text.strip().lower())
    if found is None:
        raise OptionError(key, text, "is neither YES nor NO", f"write {key}=YES or {key}=NO")
    return found


def _not(text: str, key: str, low: int, high: int) -> bool:
    return not read_yes(text, key)


def _path(text: str, key: str, low: int, high: int) -> str:
    if not text.startswith("/") or not text.isprintable() or set("*?[") & set(text):
        raise OptionError(key, text, "is no single program", "name one from / on, which calls others")
    return text


def read_name(text: str, key: str, low: int = 0, high: int = 0) -> str:
    """A name of a cluster, partition, switch or resource here. Raises OptionError."""
    allowed = all(char.isascii() and (char.isalnum() or char in "_.-") for char in text)
    if not allowed or not text[:1].isalnum() or len(text) > 63:
        raise OptionError(key, text, "is no name here", "use at most 63 letters, digits and _ . -")
    return text


_READERS: Mapping[str, Callable[[str, str, int, int], object]] = {
    "whole": _whole,
    "number": _number,
    "span": _span,
    "yes": read_yes,
    "not": _not,
    "path": _path,
    "name": read_name,
}


def read_mode(text: str) -> str:
    """The preempt_mode of a partition; empty: none of these. GANG and WITHIN beside it are not of it."""
    words = [word for word in text.lower().replace(" ", "").split(",") if word not in ("gang", "within")]
    return _MODES.get(words[0], "") if len(words) == 1 else ""


def names_of(text: str) -> Sequence[str]:
    """The words between commas, each once."""
    return list(dict.fromkeys(word for part in text.split(",") if (word := part.strip())))
