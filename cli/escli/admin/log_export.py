"""`esctl log export`: the cluster's log of facts as one file, for `eslurm replay` here or elsewhere.

Invariant: the file appears whole under its name or not at all, readable by its owner only.
"""

from __future__ import annotations

import os
import sys
import time

from escli import clock, exits, program
from escli.failures import CommandFailed
from eslurm.compat.errors import OptionError, nearest
from eslurm.compat.moments import format_moment, parse_moment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from escli.api import Api
    from escli.options import Words
    from eslurm.ports.store import LoggedFact
    from eslurm.replay.anonymise import Anonymiser
    from eslurm.replay.logfile import End, LogFile

COMMAND = "esctl"
ACTIONS = ("export",)
_PROGRESS_S = 1.0
_PAGE_TIMEOUT_S = 60.0
_SECRET_BYTES = 32


def control(api: Api, words: list[str], given: Words) -> int:
    """`esctl log export [--since TIME] [--output FILE] [--anonymise]`."""
    if not words:
        raise OptionError("log", None, "needs an action", "use esctl log export")
    action, *rest = words
    if action.lower() not in ACTIONS:
        near = nearest(action.lower(), ACTIONS)
        raise OptionError(
            "log", action, "is not an action", f"did you mean {near}?" if near else "use export"
        )
    program.no_more_words(rest)
    since_us = _since_us(given)
    path = given.text("output") or f"eslurm-log-{time.strftime('%Y%m%d-%H%M%S')}.eslog"
    summary = _export(api, path, since_us, anonymise=given.has("anonymise"))
    if given.has("json"):
        import json

        program.say(json.dumps(summary, indent=1))
    else:
        program.say(_sentence(summary))
    return exits.OK


def _since_us(given: Words) -> int:
    if not given.has("since"):
        return 0
    return parse_moment(
        given.text("since"), clock.now_us(), clock.local_offset_s, given.spelling("since"), past=True
    )


def _export(api: Api, path: str, since_us: int, *, anonymise: bool) -> dict[str, Any]:
    """Fetch, fold and write; returns a sentence on the file."""
    from pathlib import Path

    target = Path(path)
    if not target.parent.is_dir():
        raise OptionError("--output", path, "is in no directory", "make the directory first")
    pages = _Pages(api, since_us)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    raw = target.with_name(f".{target.name}.{os.getpid()}.raw")
    try:
        # First as it comes: what lies before `since` has to be played before the base state is known.
        end = _write(raw, pages)
        finished = raw
        if since_us or anonymise:
            end = _rewrite(raw, part, since_us, anonymise=anonymise)
            finished = part
        os.replace(finished, target)
    except OSError as error:
        raise CommandFailed(exits.FAILED, f"{path}: cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
        raw.unlink(missing_ok=True)
    return {
        "file": str(target),
        "bytes": target.stat().st_size,
        "facts": end.facts,
        "last_revision": end.last_revision,
        "last_us": end.last_us,
        "anonymised": anonymise,
    }


class _Pages:
    """The log in pages from the controller. `first` has the base state and the names."""

    def __init__(self, api: Api, since_us: int) -> None:
        from eslurm.v1 import controller_pb2 as pb

        self._pb = pb
        self._api = api
        self._told_s = time.monotonic()
        self.first = self._page(pb.ExportLogRequest(since_us=since_us))
        # What is written while we read is not waited for.
        self.last_revision = int(self.first.head_revision)

    def _page(self, request: Any) -> Any:
        return self._api.call("ExportLog", request, _PAGE_TIMEOUT_S)

    def facts(self) -> Iterator[LoggedFact]:
        """The facts up to the head as it was at the beginning."""
        from eslurm.ports.store import LoggedFact

        page = self.first
        while True:
            for one in page.facts:
                if one.revision > self.last_revision:
                    return
                yield LoggedFact(one.revision, one.at_us, one.kind, one.version, one.blob, one.epoch)
            if not page.next_revision or page.next_revision > self.last_revision:
                return
            self._tell(page.next_revision - 1)
            page = self._page(self._pb.ExportLogRequest(from_revision=page.next_revision))

    def _tell(self, revision: int) -> None:
        if time.monotonic() - self._told_s >= _PROGRESS_S:
            self._told_s = time.monotonic()
            sys.stderr.write(f"{COMMAND}: revision {revision} of {self.last_revision}\n")


def _write(path: Path, pages: _Pages) -> End:
    from eslurm import __version__
    from eslurm.replay.base import BadBase, read_head
    from eslurm.replay.logfile import FORMAT_VERSION, Header, LogWriter

    first = pages.first
    try:
        begins = read_head(first.base).revision + 1 if first.base else 1
    except BadBase as error:
        raise CommandFailed(exits.FAILED, f"the controller's base state: {error}") from None
    header = Header(
        FORMAT_VERSION,
        first.cluster,
        first.owner,
        begins,
        pages.last_revision,
        0,
        clock.now_us(),
        __version__,
    )
    with _private(path) as file:
        writer = LogWriter(file, header, first.base)
        for fact in pages.facts():
            try:
                writer.add(fact)
            except ValueError as error:
                raise CommandFailed(exits.FAILED, f"the controller's log has a gap: {error}") from None
        end = writer.finish()
        file.flush()
        os.fsync(file.fileno())
    return end


def _rewrite(raw: Path, part: Path, since_us: int, *, anonymise: bool) -> End:
    """The same log from `since_us` on, earlier facts folded into its base state; without names on request."""
    from eslurm.replay.base import pack_base
    from eslurm.replay.logfile import LogFile, LogWriter
    from eslurm.replay.player import CannotApply, Player

    log = LogFile(raw)
    anonymiser = _anonymiser() if anonymise else None
    base, facts = log.base, log.facts()
    first_revision = log.header.first_revision
    if since_us:
        player = Player(log)
        try:
            player.play(until_us=since_us - 1)
        except CannotApply as error:
            raise CommandFailed(exits.FAILED, f"the log before --since cannot be played: {error}") from None
        if player.played:
            base, first_revision = pack_base(player.state), player.state.revision + 1
        facts = _from(log, first_revision)
    if anonymiser is not None and base:
        base = anonymiser.base(base)
    with _private(part) as file:
        writer = LogWriter(file, _header(log, first_revision, since_us, anonymiser), base)
        for fact in facts:
            writer.add(fact if anonymiser is None else anonymiser.fact(fact))
        end = writer.finish()
        file.flush()
        os.fsync(file.fileno())
    return end


def _header(log: LogFile, first_revision: int, since_us: int, anonymiser: Anonymiser | None) -> Any:
    import msgspec

    header = msgspec.structs.replace(log.header, first_revision=first_revision, since_us=since_us)
    if anonymiser is None:
        return header
    return msgspec.structs.replace(
        header, cluster=anonymiser.word("cluster", header.cluster), anonymised=True
    )


def _anonymiser() -> Anonymiser:
    from eslurm.replay.anonymise import Anonymiser

    return Anonymiser(os.urandom(_SECRET_BYTES))


def _from(log: LogFile, revision: int) -> Iterator[LoggedFact]:
    return (fact for fact in log.facts() if fact.revision >= revision)


def _private(path: Path) -> Any:
    """A new file that only this user may read, from its first byte on."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _sentence(summary: dict[str, Any]) -> str:
    ends = format_moment(summary["last_us"], clock.local_offset_s)
    names = ", names replaced" if summary["anonymised"] else ""
    return (
        f"{summary['file']}: {summary['facts']} facts up to revision {summary['last_revision']} ({ends}), "
        f"{summary['bytes']} bytes{names}; look at it with `eslurm replay {summary['file']}`"
    )
