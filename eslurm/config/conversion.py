"""Conversion of a file's values with all problems of their form, where `msgspec.convert` tells of the first alone.

In place of a value that cannot be taken stands another one, so that the sections can be judged further and items keep their
indexes. Invariant: it adds a problem exactly when `msgspec.convert` refuses the values.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import inspect

from eslurm.compat.errors import OptionError, nearest
from eslurm.config.positions import Path
from eslurm.config.problems import Problems
from eslurm.config.values import NAME

INT_BITS_MAX = 128
"""Longer numbers are not written out: Python refuses those of a few thousand digits."""
KEYS_SHOWN_MAX = 12

T = TypeVar("T")


def converted(values: dict[str, Any], kind: type[T], problems: Problems) -> T:
    """The values as the structure `kind`. Problems of their form are added to `problems`."""
    made: T = _converted(values, kind, (), problems)
    return made


def shown(value: object) -> str:
    """A value as the file has it, if it is short."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > INT_BITS_MAX:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, list):
        return "[...]"
    return "{...}" if isinstance(value, dict) else str(value)


def _converted(value: Any, kind: Any, path: Path, problems: Problems) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        pass
    kind = _present(kind)
    origin = get_origin(kind)
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _structure(value, kind, path, problems)
    if isinstance(value, list) and origin is list:
        (item,) = get_args(kind)
        return [_converted(one, item, (*path, at), problems) for at, one in enumerate(value)]
    if isinstance(value, dict) and origin is dict:
        _, item = get_args(kind)
        return {key: _converted(one, item, (*path, key), problems) for key, one in value.items()}
    error = OptionError(_name(path), shown(value), _why(value, kind), _form(kind, path))
    problems.add_malformed(path, error)
    return _stand_in(kind)


def _structure(value: dict[str, Any], kind: type[msgspec.Struct], path: Path, problems: Problems) -> Any:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    meant = set[str]()
    for key in value:
        if key not in fields:
            meant.add(nearest(key, fields))
            error = OptionError(
                _name((*path, key)), None, "is no key of the configuration", _known(key, fields)
            )
            problems.add_malformed((*path, key), error, is_key=True)
    made = {}
    for key, field in fields.items():
        where = (*path, key)
        if key in value:
            found = _converted(value[key], field.type, where, problems)
            made[field.name] = found
        elif field.required:
            error = OptionError(_name(where), None, "is missing", _form(field.type, where))
            problems.add_malformed(where, None if key in meant else error)
            made[field.name] = _stand_in(field.type)
    return kind(**made)


def _present(kind: Any) -> Any:
    """The kind without what no file can say: None."""
    if get_origin(kind) in (Union, types.UnionType):
        kinds = [one for one in get_args(kind) if one is not type(None)]
        return kinds[0] if len(kinds) == 1 else kind
    return kind


def _stand_in(kind: Any) -> Any:
    """A value of the kind. Its form is all that counts: what else is wrong with it is not told."""
    match inspect.type_info(_present(kind)):
        case inspect.StructType(cls=cls):
            return cls(**{f.name: _stand_in(f.type) for f in msgspec.structs.fields(cls) if f.required})
        case inspect.ListType():
            return []
        case inspect.DictType():
            return {}
        case inspect.BoolType():
            return False
        case inspect.IntType(ge=lowest):
            return lowest or 0
        case inspect.FloatType(ge=lowest):
            return 1.0 if lowest is None else lowest
        case inspect.LiteralType(values=values):
            return values[0]
    return ""


def _why(value: object, kind: Any) -> str:
    info = inspect.type_info(kind)
    match info:
        case inspect.BoolType():
            return "is neither true nor false"
        case inspect.IntType():
            return "is out of bounds" if type(value) is int else "is no whole number"
        case inspect.FloatType():
            return "is out of bounds" if type(value) in (int, float) else "is no number"
        case inspect.StrType():
            return "is no name" if isinstance(value, str) else "is no text"
        case inspect.LiteralType():
            return "is unknown"
        case inspect.ListType():
            return "is no list"
        case inspect.StructType() | inspect.DictType():
            return "is no table"
    return "cannot be a value here"


def _form(kind: Any, path: Path) -> str:
    """The way out: a value of the kind."""
    info = inspect.type_info(_present(kind))
    match info:
        case inspect.BoolType():
            return "write true or false"
        case inspect.IntType():
            return f"write a whole number{_bounds(info)}"
        case inspect.FloatType():
            return f"write a number{_bounds(info)}"
        case inspect.StrType(pattern=pattern) if pattern == NAME:
            return "use at most 63 letters, digits, and '-', '_', '.' after the first"
        case inspect.StrType():
            return 'write a text in quotes: "..."'
        case inspect.LiteralType(values=values):
            return f"use one of {', '.join(map(str, values))}"
        case inspect.ListType(item_type=inspect.StructType()):
            return f"write each as [[{_name(path)}]]"
        case inspect.ListType():
            return "write a list in brackets: [...]"
        case inspect.StructType() | inspect.DictType():
            return f"write it as [{_name(path)}]"
    return "write a text in quotes, a number, true or false"


def _bounds(info: inspect.IntType | inspect.FloatType) -> str:
    is_whole = isinstance(info, inspect.IntType)
    highest = info.lt - 1 if is_whole and info.lt is not None else info.le
    at_most = "" if highest is None else f"{highest:.10g}"
    if info.lt is not None and not is_whole:
        at_most = f"less than {info.lt:.10g}"
    if info.ge is None and info.gt is None:
        return f" of at most {at_most}" if at_most else ""
    if info.gt is not None:
        return f" above {info.gt:g}" + (f" and at most {at_most}" if at_most else "")
    return f" from {info.ge:g}" + (f" to {at_most}" if at_most else " on")


def _known(key: str, fields: Iterable[str]) -> str:
    near = nearest(key, fields)
    names = list(fields)
    if near:
        return f"did you mean {near}?"
    if len(names) <= KEYS_SHOWN_MAX:
        return f"use one of {', '.join(names)}"
    return "see docs/reference/configuration.md for the keys there are"


def _name(path: Path) -> str:
    """The dotted key of a path, without indexes; of a bounded length."""
    return ".".join(part if len(part) <= 63 else f"{part[:60]}..." for part in path if isinstance(part, str))
