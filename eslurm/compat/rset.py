"""Requests made of chunks, as PBS writes them (C-16, C-17): `8:ncpus=2:mem=10g+1:ncpus=16:gpus=2,place=scatter:excl`.

    RSET   = CHUNK { "+" CHUNK } { "," ( "place=" PLACE | WORD "=" VALUE ) }
    CHUNK  = [ N ":" ] [ WORD "=" VALUE { ":" WORD "=" VALUE } ]
    PLACE  = free | pack | scatter, and excl | shared, joined by ":"

What follows a comma is of the whole job. `ncpus` (cores), `mem`, `gpus` and `gpu_type` mean the same on every cluster. Any
other WORD is the cluster's: where it is a configured resource, VALUE is an amount of it (with K, M, G or T: MiB); else
the chunk's nodes must have the feature `WORD=VALUE`, or `WORD` alone for the values true and false. Only the controller
knows which, so `parse_rset` leaves such words in the constraint and `settle` takes the amounts out of it there.
"""

from __future__ import annotations

from eslurm.compat.errors import OptionError, quoted, whole_number
from eslurm.compat.sizes import parse_memory
from eslurm.core.model import request_limits as limits
from eslurm.core.model.features import WORD_CHARS, all_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

PLACES = ("free", "pack", "scatter")
_CORES = ("ncpus", "cores", "cpus")
_MEMORY = ("mem", "memory")
_GPUS = ("gpus", "ngpus", "gpu")
_EXAMPLE = "write e.g. --rset '8:ncpus=2:mem=10g+1:ncpus=16:gpus=2,place=scatter:excl'"
_NOT_COUNTED = {
    "mpiprocs": "start as many with esrun -n",
    "ompthreads": "export OMP_NUM_THREADS in the script",
}


class ParsedChunk:
    """One kind of chunk: `count` times these amounts on one node with these features."""

    __slots__ = ("constraint", "cores", "count", "memory_mib", "resources")

    def __init__(self, count: int) -> None:
        self.count = count
        self.cores = 1
        self.memory_mib = 0
        self.resources: list[tuple[str, int]] = []
        self.constraint = ""


class ParsedRset:
    """The whole text. `constraint` are the words of the whole job that the cluster interprets."""

    __slots__ = ("chunks", "constraint", "exclusive", "place")

    def __init__(self) -> None:
        self.chunks: list[ParsedChunk] = []
        self.place = "free"
        self.exclusive = False
        self.constraint = ""


def parse_rset(text: str, option: str = "--rset") -> ParsedRset:
    """Read the text. Raises OptionError that names the column."""
    return _Reader(text, option).read()


def settle(
    constraint: str, names: Collection[str], option: str = "--rset"
) -> tuple[tuple[tuple[str, int], ...], str]:
    """(amounts, the rest): the words of a constraint whose names are configured resources, as amounts.

    A constraint that is more than words joined by `&` is left as it is. Raises OptionError for an invalid amount.
    """
    found = all_of(constraint) if constraint else ()
    amounts: list[tuple[str, int]] = []
    rest: list[str] = []
    for word in found:
        if not isinstance(word, str):
            return (), constraint
        name, equals, value = word.partition("=")
        if equals and name in names:
            amounts.append((name, _amount(value, word, option)))
        else:
            rest.append(word)
    return tuple(amounts), "&".join(rest)


def _amount(value: str, word: str, option: str) -> int:
    number = whole_number(value, 10)
    if number < 0 and whole_number(value[:-1], 10) >= 0:
        number = parse_memory(value, option)
    if not 0 < number <= limits.COUNT_MAX:
        raise OptionError(option, word, "is not an amount", f"write e.g. {word.partition('=')[0]}=2")
    return number


class _Reader:
    def __init__(self, text: str, option: str) -> None:
        self._text = text
        self._option = option
        self._found = ParsedRset()

    def read(self) -> ParsedRset:
        start = len("rset=") if self._text.startswith("rset=") else 0
        body, *more = self._text[start:].split(",")
        column = start + 1
        for chunk in body.split("+"):
            self._chunk(chunk, column)
            column += len(chunk) + 1
        if len(self._found.chunks) > limits.CHUNKS_MAX:
            raise self._error(
                1, f"has more than {limits.CHUNKS_MAX} kinds of chunks", "join equal ones: N:..."
            )
        for wide in more:
            self._of_job(wide, column)
            column += len(wide) + 1
        constraints = (self._found.constraint, *(chunk.constraint for chunk in self._found.chunks))
        if max(map(len, constraints)) > limits.CONSTRAINT_CHARS_MAX:
            raise self._error(
                1, f"names features of more than {limits.CONSTRAINT_CHARS_MAX} characters", "name fewer"
            )
        return self._found

    def _chunk(self, text: str, column: int) -> None:
        words = text.split(":")
        count = 1
        if words[0] and words[0][0].isdigit() and "=" not in words[0]:
            count = whole_number(words[0], 10)
            if not 0 < count <= limits.COUNT_MAX:
                raise self._error(column, f"{quoted(words[0])} is not a number of chunks", _EXAMPLE)
            column += len(words[0]) + 1
            words = words[1:]
        elif not text:
            raise self._error(column, "a chunk is missing", _EXAMPLE)
        chunk = ParsedChunk(count)
        seen: set[str] = set()
        features: list[str] = []
        for word in words:
            name, value = self._named(word, column)
            if name in seen:
                raise self._error(column, f"{quoted(name)} is given twice in one chunk", "give it once")
            seen.add(name)
            self._setting(chunk, name, value, features, column)
            column += len(word) + 1
        chunk.constraint = "&".join(features)
        self._found.chunks.append(chunk)

    def _setting(self, chunk: ParsedChunk, name: str, value: str, features: list[str], column: int) -> None:
        if name in _CORES:
            chunk.cores = self._number(name, value, column)
        elif name in _MEMORY:
            chunk.memory_mib = self._memory(name, value, column)
        elif name in _GPUS:
            chunk.resources.append(("gpu", self._number(name, value, column)))
        elif name == "gpu_type":
            features.append(f"gpu:{value}")
        else:
            features.append(self._feature(name, value, column))

    def _of_job(self, text: str, column: int) -> None:
        name, value = self._named(text, column, with_colons=True)
        if name == "place":
            self._place(value, column + len("place="))
            return
        if name in (*_CORES, *_MEMORY, *_GPUS):
            raise self._error(
                column, f"{quoted(name)} belongs to a chunk, not to the whole job", "join it with ':'"
            )
        feature = self._feature(name, value, column)
        self._found.constraint += ("&" if self._found.constraint else "") + feature

    def _place(self, value: str, column: int) -> None:
        for word in value.split(":"):
            if word in PLACES:
                self._found.place = word
            elif word in ("excl", "exclusive", "shared"):
                self._found.exclusive = word != "shared"
            else:
                raise self._error(
                    column, f"{quoted(word)} is no placement", "use free, pack or scatter, and excl or shared"
                )
            column += len(word) + 1

    def _feature(self, name: str, value: str, column: int) -> str:
        if name in _NOT_COUNTED:
            raise self._error(column, f"{quoted(name)} is not counted here", _NOT_COUNTED[name])
        if value.lower() in ("true", "false"):
            return name if value.lower() == "true" else f"!{name}"
        return f"{name}={value}"

    def _named(self, word: str, column: int, *, with_colons: bool = False) -> tuple[str, str]:
        name, equals, value = word.partition("=")
        if not name or not equals or not value:
            raise self._error(column, f"{quoted(word)} is not WORD=VALUE", _EXAMPLE)
        for at, char in enumerate(word):
            if char not in WORD_CHARS or (char == ":" and not with_colons):
                raise self._error(column + at, f"{quoted(char)} cannot stand here", _EXAMPLE)
        return name, value

    def _number(self, name: str, value: str, column: int) -> int:
        number = whole_number(value, 10)
        if not 0 < number <= limits.COUNT_MAX:
            raise self._error(
                column + len(name) + 1, f"{quoted(value)} is not a number from 1 on", f"write e.g. {name}=4"
            )
        return number

    def _memory(self, name: str, value: str, column: int) -> int:
        try:
            mib = parse_memory(value, self._option)
        except OptionError as error:
            raise self._error(
                column + len(name) + 1, f"{quoted(value)} {error.why}", f"write e.g. {name}=10g"
            ) from None
        return mib

    def _error(self, column: int, why: str, way_out: str) -> OptionError:
        return OptionError(self._option, self._text, f"is not understood in column {column}: {why}", way_out)
