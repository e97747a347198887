"""A file of `sacctmgr dump` as policies for `esctl load`.

Invariant: what comes out is read by the reader of policies, names nothing that it does not hold, and each option of the file
that is not in it is among the findings.
"""

from __future__ import annotations

from eslurm.compat.errors import OptionError
from eslurm.compat.policies import read_change
from eslurm.compat.policy_keys import NAME, Site
from eslurm.compat.slurm import account_file, associations
from eslurm.compat.slurm.abbreviated import Phrase, Unusable, Word, listed
from eslurm.compat.slurm.account_file import Load, open_to
from eslurm.compat.slurm.associations import ROOT
from eslurm.compat.slurm.conf.draft import CHANGED, LEFT
from eslurm.compat.slurm.conf.lines import Line, Pair
from eslurm.compat.slurm.manager_qos import qos_settings
from eslurm.compat.slurm.manager_steps import read_limits, read_shares
from eslurm.compat.slurm.manager_words import ACCOUNT, CLUSTER, QOS, USER, Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeAlias

    from eslurm.compat.slurm.account_file import Entry
    from eslurm.compat.slurm.conf.draft import Draft

    Policies: TypeAlias = dict[str, dict[str, dict[str, object]]]
    """Kind -> name -> settings."""

_LISTS = ("accounts", "qos", "coordinators", "preempts")
_QOS_LIST = Word("QOS", 3, "qos", "")
_CONTEXT = Site(0, lambda _: 0, lambda name: name, lambda number: number)
_DEFAULT = ("qos", "defaultqos")
_ALWAYS = ("cores", "memory_mib", "nodes", "jobs")
"""Resources of each cluster that limits are on."""


def convert_dump(draft: Draft, file: str, text: str) -> Policies:
    """The policies of a file, for the resources that the draft has. Raises Unusable for a text that is no such file."""
    refused: list[account_file.Refused] = []
    entries = account_file.parse(text, refused)
    dump, before = _Dump(draft, file), len(draft.findings)
    for number, piece, problem in refused:
        key, _, value = piece.partition("=")
        dump.report(number, key, value, problem)
    found = dump.policies(dump.cleaned(entries))
    draft.findings[before:] = sorted(draft.findings[before:], key=lambda one: one.line)
    return found


class _Dump:
    """A file while it is converted."""

    def __init__(self, draft: Draft, file: str) -> None:
        self._draft = draft
        self._file = file
        self._accounts: dict[str, Entry] = {}
        self._clusters: list[Entry] = []
        self._lines: dict[tuple[str, str], int] = {}
        self._resources = {*_ALWAYS, *draft.resources()}

    def report(self, number: int, key: str, value: str, why: object, effect: str = LEFT) -> None:
        """Add a finding; `why` is a text or what was raised."""
        text = str(why)
        if isinstance(why, Unusable):
            text = why.lines[0].strip().removeprefix("sacctmgr: error: ")
        if isinstance(why, OptionError):
            text = f"{why.why}: {why.way_out}" if why.way_out else why.why
        self._draft.add(effect, Line(self._file, number, []), Pair(key.strip(), value.strip()), text)

    def cleaned(self, entries: Sequence[Entry]) -> list[Entry]:
        """The entries that a site takes, with the settings that it takes."""
        kept: list[Entry] = []
        seen: set[tuple[str, str, str]] = set()
        users: dict[str, list[Entry]] = {}
        for one in entries:
            identity = (one.kind, one.name, one.parent if one.kind == USER else "")
            if one.kind != CLUSTER and not NAME.fullmatch(one.name):
                self.report(
                    one.number, one.kind, one.name, "is no name here: use letters, digits and _ . @ -"
                )
            elif identity in seen:
                self.report(one.number, one.kind, one.name, "is given again: the first line counts")
            elif one.kind == USER and one.parent == ROOT:
                if one.name != ROOT:
                    self.report(
                        one.number, one.kind, one.name, "is in the root account, which has no users here"
                    )
            elif one.kind in (ACCOUNT, USER) and one.parent != ROOT and one.parent not in self._accounts:
                self.report(one.number, one.kind, one.name, f"is below {one.parent}, which is left out")
            else:
                seen.add(identity)
                one.settings = [phrase for phrase in one.settings if self._is_taken(one, phrase)]
                kept.append(one)
                self._lines.setdefault((one.kind, one.name), one.number)
                if one.kind == ACCOUNT:
                    self._accounts[one.name] = one
                if one.kind == CLUSTER:
                    self._clusters.append(one)
                if one.kind == USER:
                    users.setdefault(one.name, []).append(one)
        for lines in users.values():
            self._settle(lines)
        for one in (*self._accounts.values(), *self._clusters):
            one.settings = [phrase for phrase in one.settings if phrase.key not in _DEFAULT]
        return kept

    def _is_taken(self, one: Entry, phrase: Phrase) -> bool:
        """Check one setting as it is read later."""
        request = Request()
        request.settings = [phrase]
        try:
            if one.kind == QOS:
                qos_settings(associations.Site(()), request, {})
            elif one.kind == CLUSTER:
                return phrase.key in _DEFAULT
            else:
                read_shares(request)
            limits = read_limits(request, one.kind)
        except Unusable as problem:
            self.report(one.number, phrase.word.name, phrase.value, problem)
            return False
        # A limit that is ended is none.
        return not limits or any(value is not None for value in limits.values())

    def _settle(self, lines: list[Entry]) -> None:
        """Make the lines of a user agree: a user has one share, one list of QOS, and limits with one account only."""
        accounts = [one.parent for one in lines]
        default = next((text for one in lines if (text := one.request().value("defaultaccount"))), "")
        chosen = lines[accounts.index(default)] if default in accounts else lines[0]
        shares, qos = chosen.request().setting("fairshare"), self._qos(chosen)
        for one in lines:
            kept: list[Phrase] = []
            for phrase in one.settings:
                if phrase.key == "defaultaccount" and phrase.value not in accounts:
                    self.report(one.number, phrase.word.name, phrase.value, "is none of the user's accounts")
                elif phrase.key == "fairshare":
                    if shares is None or phrase.value != shares.value:
                        self.report(
                            one.number,
                            phrase.word.name,
                            phrase.value,
                            f"a user has one share: that of {chosen.parent} counts",
                        )
                elif phrase.key not in _DEFAULT:
                    if len(lines) > 1 and _is_limit(phrase):
                        self.report(
                            one.number,
                            phrase.word.name,
                            phrase.value,
                            "a limit of a user is on all of its accounts together",
                        )
                    else:
                        kept.append(phrase)
            if one is not chosen and self._qos(one) != qos:
                self.report(
                    one.number, USER, one.name, f"a user has one list of QOS: that of {chosen.parent} counts"
                )
            one.settings = kept
        for one in lines:
            one.settings += [shares] if shares else []
            one.settings.append(Phrase(_QOS_LIST, "", ",".join(qos), ""))

    def _qos(self, one: Entry) -> list[str]:
        """The QOS of an association, the default first."""
        default, found = open_to(one, self._accounts, self._clusters)
        if default and default not in found:
            self.report(one.number, "DefaultQOS", default, f"is none of the QOS: {','.join(found) or 'none'}")
            default = ""
        return [default, *(name for name in found if name != default)] if default else found

    def policies(self, entries: Sequence[Entry]) -> Policies:
        """The policies of entries that agree."""
        found: Policies = {kind: {} for kind in ("qos", "account", "user", "limit")}
        for change in Load(associations.Site(()), entries).changes:
            number = self._number(change.kind, change.name, change.settings)
            if change.action != "add":
                self.report(
                    number,
                    change.kind,
                    change.name,
                    "is no account of the file: its coordinators are left out",
                )
                continue
            settings = list(self._readable(change.kind, change.name, change.settings, number))
            if settings or change.kind == QOS:
                found[change.kind][change.name] = {
                    key: listed(value) if key in _LISTS else value for key, value in settings
                }
        self._add_qos(found)
        return {kind: named for kind, named in found.items() if named}

    def _number(self, kind: str, name: str, settings: Sequence[tuple[str, str]]) -> int:
        if kind != "limit":
            return self._lines.get((kind, name), 0)
        return next((self._lines[pair] for pair in settings if pair in self._lines), 0)

    def _readable(
        self, kind: str, name: str, settings: Sequence[tuple[str, str]], number: int
    ) -> Iterator[tuple[str, str]]:
        """The settings that the reader of policies takes; of a limit all or none."""
        if kind == "limit":
            resource = dict(settings)["resource"]
            if resource not in self._resources:
                self.report(
                    number, name, resource, "is no resource of the configuration: add it, then the limit"
                )
                return
            try:
                read_change("set", kind, name, settings, _CONTEXT)
            except OptionError as error:
                self.report(number, name, "", error)
                return
            yield from settings
            return
        for key, value in settings:
            try:
                read_change("set", kind, name, [(key, value)], _CONTEXT)
            except OptionError as error:
                self.report(number, key, value, error)
            else:
                yield key, value

    def _add_qos(self, found: Policies) -> None:
        """Add the QOS that users and other QOS name, and that have no line: older releases dump none."""
        named: dict[str, None] = {}
        for kind, key in (("user", "qos"), ("qos", "preempts")):
            for settings in found[kind].values():
                names = settings.get(key, [])
                assert isinstance(names, list)
                named.update(dict.fromkeys(names))
        for name in named:
            if name not in found["qos"]:
                found["qos"][name] = {}
                self.report(
                    0, QOS, name, "has no line: set its priority and limits: sacctmgr show qos", CHANGED
                )


def _is_limit(phrase: Phrase) -> bool:
    request = Request()
    request.settings = [phrase]
    return bool(read_limits(request, USER))
