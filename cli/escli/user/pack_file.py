"""The file of `essubmit --pack`: YAML, JSON, or a line of options for each job of the pack.

`PACK_FIELDS` and `PART_FIELDS` are all that YAML and JSON may say; `docs/reference/pack.schema.json` is made from them.
Invariant: a reader raises `OptionError` and nothing else, whatever the file.
"""

from __future__ import annotations

from escli.user.job_parts import OF_PART, command_parts
from escli.user.pack_members import FAIL_WORDS, Member, check_members, delay_of
from eslurm.compat.durations import parse_delay
from eslurm.compat.errors import OptionError
from eslurm.compat.script import split_words
from eslurm.core.model.request_limits import PACK_MEMBERS_MAX
from eslurm.core.model.values import text_problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from escli.options import Parser, Words

FILE_BYTES_MAX = 256 * 1024
TEXT, WORDS, DELAY, PARTS, FAIL = "text", "words", "delay", "parts", "fail"
_GUIDE = "see docs/guide/workflows.md"
_OF_FIRST = ("begin", "dependency", "start-at", "hold")
"""Options beside --pack that say when the pack begins."""


class Field:
    """One key of a pack file."""

    __slots__ = ("kind", "meaning", "name", "required")

    def __init__(self, name: str, kind: str, meaning: str, *, required: bool = False) -> None:
        self.name = name
        self.kind = kind
        self.meaning = meaning
        self.required = required


PACK_FIELDS = (
    Field("name", TEXT, "name of each job whose options and script give none"),
    Field("fail", FAIL, "as --pack-fail: go-on, or cancel"),
    Field("parts", PARTS, "the jobs of the pack, the first one first", required=True),
)
PART_FIELDS = (
    Field("script", TEXT, "the job's script; not needed with --wrap"),
    Field("arguments", WORDS, "arguments of the script"),
    Field(
        "delay", DELAY, "time after the start of the first job: seconds, h:m:s or d-h:m:s; of the first job 0"
    ),
    Field(
        "options", WORDS, "options as for essubmit; a word ':' begins the next part of a job of several parts"
    ),
)


def read_pack(data: bytes, name: str, beside: Words, parser: Parser, own: frozenset[str]) -> list[Member]:
    """The jobs of a pack file. Raises OptionError.

    `beside` are the options of the command line, which hold for each job that does not give its own; `own` those that only
    the command line may give.
    """
    for long in (*sorted(OF_PART), "wrap", "delay"):
        if beside.has(long):
            raise OptionError(
                beside.spelling(long),
                beside.text(long) or None,
                "differs from job to job",
                f"give it in {name}",
            )
    if beside.rest:
        raise OptionError(
            "--pack", beside.rest[0], "is beside the file", f"name scripts and arguments in {name}"
        )
    members = _members(_text(data, name), name, parser)
    if not members:
        raise OptionError("--pack", name, "names no job", _GUIDE)
    check_members(members, "leave it out: the pack begins with this job")
    for index, member in enumerate(members):
        for part in member.parts:
            for long in part.names():
                if long in own and long not in ("wrap", "pack-fail"):
                    raise OptionError(
                        part.spelling(long),
                        part.text(long) or None,
                        "is for the command line only",
                        "remove it",
                    )
        if member.source is None:
            raise OptionError(
                f"{member.where}script", None, "is missing", "use e.g. run.sh, or --wrap 'make -j8'"
            )
        _complete(member, beside, is_first=not index)
    return members


def _complete(member: Member, beside: Words, *, is_first: bool) -> None:
    """Add the command line's options that the job does not give."""
    excludes = {"requeue": "no-requeue", "no-requeue": "requeue"}
    for long in beside.names():
        if long == "pack" or (long in _OF_FIRST and not is_first):
            continue
        if not any(part.has(long) or part.has(excludes.get(long, long)) for part in member.parts):
            member.parts[0].put(long, beside.text(long), beside.spelling(long))


def _text(data: bytes, name: str) -> str:
    if len(data) > FILE_BYTES_MAX:
        raise OptionError("--pack", name, f"is longer than {FILE_BYTES_MAX} bytes", "submit several packs")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise OptionError("--pack", name, f"is not UTF-8 (byte {error.start})", "convert it") from None


def _members(text: str, name: str, parser: Parser) -> list[Member]:
    if name.endswith(".json") or text.lstrip().startswith("{"):
        return _from_fields(_read_json(text, name), name, parser)
    if name.endswith((".yaml", ".yml")) or _is_yaml(text):
        from escli.user.pack_yaml import read_yaml

        return _from_fields(read_yaml(text, name), name, parser)
    return _from_lines(text, parser)


def _is_yaml(text: str) -> bool:
    """Check whether the first line that is no comment begins a mapping or a document."""
    for line in text.splitlines():
        words = line.split()
        if words and not words[0].startswith("#"):
            return words[0].endswith(":") or words[0] in ("---", "%YAML")
    return False


# ---- a line for each job ----


def _from_lines(text: str, parser: Parser) -> list[Member]:
    members: list[Member] = []
    for number, line in enumerate(text.splitlines(), 1):
        where = f"line {number}: "
        words = split_words(line, f"line {number}")
        if not words:
            continue
        parts = command_parts(parser.parse(words, where), parser, where)
        for part in parts[1:]:
            if part.has("delay"):
                raise OptionError(
                    part.spelling("delay"),
                    part.text("delay"),
                    "is not in the job's first part",
                    "begin a new line",
                )
        _check_scripts(parts, where)
        members.append(Member(parts, delay_of(parts[0]), where))
        _check_count(members)
        parts[0].drop(("delay",))
    return members


def _check_scripts(parts: Sequence[Words], where: str) -> None:
    scripts = [part.rest[0] for part in parts if part.rest]
    if len(scripts) > 1:
        raise OptionError(f"{where}script", scripts[1], "is a second one", "begin a new line for each job")


def _check_count(members: Sequence[Member]) -> None:
    if len(members) > PACK_MEMBERS_MAX:
        check_members(members)


# ---- YAML and JSON ----


def _read_json(text: str, name: str) -> Any:
    import json

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in found:
            if key in values:
                raise OptionError(name, key, "is given twice", "give it once")
            values[key] = value
        return values

    try:
        return json.loads(text, object_pairs_hook=pairs, parse_int=str, parse_float=str)
    except OptionError:
        raise
    except RecursionError:
        raise OptionError("--pack", name, "is nested too deeply", _GUIDE) from None
    except ValueError as error:
        raise OptionError("--pack", name, f"is not JSON ({error})", _GUIDE) from None


def _from_fields(content: Any, name: str, parser: Parser) -> list[Member]:
    top = _mapping(content, PACK_FIELDS, name)
    pack_name = _as_text(top.get("name", ""), f"{name}: name")
    parts = top["parts"]
    if not isinstance(parts, list):
        raise OptionError(
            f"{name}: parts", None, "is not a list", "use e.g. parts: [{script: a.sh}, {script: b.sh}]"
        )
    if len(parts) > PACK_MEMBERS_MAX:
        raise OptionError(
            f"{name}: parts",
            f"{len(parts)} jobs",
            f"are more than {PACK_MEMBERS_MAX}",
            "submit several packs",
        )
    members = [_member(part, f"part {number}: ", pack_name, parser) for number, part in enumerate(parts)]
    if "fail" in top:
        text = _as_text(top["fail"], f"{name}: fail")
        for member in members:
            if not any(part.has("pack-fail") for part in member.parts):
                member.parts[0].put("pack-fail", text, f"{name}: fail")
    return members


def _member(content: Any, where: str, pack_name: str, parser: Parser) -> Member:
    fields = _mapping(content, PART_FIELDS, where.rstrip(": "))
    options = parser.parse(_as_words(fields.get("options", []), f"{where}options"), where)
    parts = command_parts(options, parser, where)
    for part in parts:
        if part.rest:
            raise OptionError(
                f"{where}options",
                part.rest[0],
                "is not an option",
                "name the script as `script`, its words as `arguments`",
            )
        if part.has("delay"):
            raise OptionError(
                part.spelling("delay"),
                part.text("delay"),
                "is among the options",
                "give it as `delay` of the part",
            )
    if "script" in fields:
        script = _as_text(fields["script"], f"{where}script")
        if not script.strip():
            raise OptionError(f"{where}script", script, "is not a file name", "use e.g. script: run.sh")
        parts[0].rest = [script, *_as_words(fields.get("arguments", []), f"{where}arguments")]
    elif "arguments" in fields:
        raise OptionError(f"{where}arguments", None, "has no script", "add e.g. script: run.sh")
    text = _as_text(fields.get("delay", "0"), f"{where}delay")
    return Member(parts, parse_delay(text, f"{where}delay"), where, pack_name)


def _mapping(content: Any, fields: Sequence[Field], where: str) -> Mapping[str, Any]:
    known = ", ".join(field.name for field in fields)
    if not isinstance(content, dict):
        raise OptionError(where, None, "is not a mapping", f"its keys are {known}")
    for key in content:
        if key not in [field.name for field in fields]:
            raise OptionError(where, str(key), "is not a key", f"the keys are {known}")
    for field in fields:
        if field.required and field.name not in content:
            raise OptionError(f"{where}: {field.name}", None, "is missing", _GUIDE)
    return content


def _as_text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise OptionError(where, None, "is not a text", "write one value there; quote it where needed")
    problem = text_problem(value)
    if problem:
        raise OptionError(where, None, *problem.split(": ", 1))
    return value


def _as_words(value: Any, where: str) -> Sequence[str]:
    """A list of words, or one text that is split as a shell would."""
    if isinstance(value, str):
        return split_words(value, where)
    if not isinstance(value, list):
        raise OptionError(where, None, "is not a list of words", "use e.g. [-N4, --time, 60]")
    return [_as_text(one, where) for one in value]


# ---- the schema ----


def schema() -> dict[str, Any]:
    """The JSON Schema of a pack file."""
    part = _object(PART_FIELDS)
    whole = _object(PACK_FIELDS)
    whole["properties"]["parts"]["items"] = part
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A pack of jobs, for essubmit --pack",
        **whole,
    }


def _object(fields: Sequence[Field]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {field.name: {"description": field.meaning, **_SHAPES[field.kind]} for field in fields},
        "required": [field.name for field in fields if field.required],
        "additionalProperties": False,
    }


_SHAPES: Mapping[str, dict[str, Any]] = {
    TEXT: {"type": ["string", "number"]},
    WORDS: {"type": ["array", "string", "number"], "items": {"type": ["string", "number"]}},
    DELAY: {
        "type": ["string", "integer"],
        "pattern": "^([0-9]+|([0-9]+-)?[0-9]+:[0-9]+:[0-9]+)$",
        "minimum": 0,
    },
    FAIL: {"type": "string", "enum": list(FAIL_WORDS)},
    PARTS: {"type": "array", "minItems": 1, "maxItems": PACK_MEMBERS_MAX},
}
