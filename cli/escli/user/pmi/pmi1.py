"""PMI-1: lines of `name=value` words, each request with one answer."""

from __future__ import annotations

from escli.user.pmi.space import KEY_BYTES_MAX, VALUE_BYTES_MAX, Aborted, PutRefused
from eslurm.compat.pmi2_messages import BadMessage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from escli.user.pmi.space import Space

    Words = Mapping[bytes, bytes]

LINE_BYTES_MAX = 64 * 1024
_NAME_BYTES_MAX = 256
_CODE_MAX = 255


def take_line(buffer: bytearray) -> bytes | None:
    """Take a whole line off the buffer; None: there is none yet. Raises `BadMessage`."""
    end = buffer.find(b"\n", 0, LINE_BYTES_MAX)
    if end < 0:
        if len(buffer) >= LINE_BYTES_MAX:
            raise BadMessage(f"a line of more than {LINE_BYTES_MAX} bytes")
        return None
    line = bytes(buffer[:end])
    del buffer[: end + 1]
    return line


def parse(line: bytes) -> dict[bytes, bytes]:
    """The words of a line by their names. Raises `BadMessage`."""
    words: dict[bytes, bytes] = {}
    for word in line.split():
        name, equals, value = word.partition(b"=")
        if not equals or not name:
            raise BadMessage(f"a word without a name: {word[:64]!r}")
        words[name] = value
    return words


def init_answer(version: int, code: int = 0) -> bytes:
    """The answer to the first line of PMI-1 and of PMI-2."""
    return b"cmd=response_to_init pmi_version=%d pmi_subversion=%d rc=%d\n" % (version, 2 - version, code)


class Pmi1:
    """One rank that speaks PMI-1."""

    def __init__(self, space: Space, rank: int) -> None:
        self._space = space
        self._rank = rank
        self._spawns = 0
        """1 within the lines of a request to spawn."""
        self.is_finalized = False
        space.begun.add(rank)

    def feed(self, buffer: bytearray) -> bool:
        """Serve one request off the buffer; False: none is whole. Raises `BadMessage`, `Aborted`."""
        line = take_line(buffer)
        if line is None:
            return False
        if self._spawns:
            self._spawn_line(line)
            return True
        if line.startswith(b"mcmd=spawn"):
            self._spawns = 1
            return True
        words = parse(line)
        handle = _HANDLERS.get(words.get(b"cmd", b""))
        if handle is None:
            raise BadMessage(f"an unknown request: {line[:64]!r}")
        handle(self, words)
        return True

    def _spawn_line(self, line: bytes) -> None:
        if line == b"endcmd":
            self._spawns = 0
            self._say(b"cmd=spawn_result rc=-1 errmsg=spawn_is_not_supported")

    def _say(self, line: bytes) -> None:
        self._space.answer(self._rank, line + b"\n")

    def _init(self, _words: Words) -> None:
        raise BadMessage("starts MPI a second time: a task runs one MPI program")

    def _maxes(self, _words: Words) -> None:
        self._say(
            b"cmd=maxes kvsname_max=%d keylen_max=%d vallen_max=%d"
            % (_NAME_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX)
        )

    def _appnum(self, _words: Words) -> None:
        self._say(b"cmd=appnum appnum=0")

    def _universe_size(self, _words: Words) -> None:
        self._say(b"cmd=universe_size size=%d" % self._space.size)

    def _kvsname(self, _words: Words) -> None:
        self._say(b"cmd=my_kvsname kvsname=" + self._space.name)

    def _put(self, words: Words) -> None:
        try:
            self._check_name(words)
            self._space.put(self._rank, words.get(b"key", b""), words.get(b"value", b""))
        except PutRefused as error:
            self._say(b"cmd=put_result rc=-1 msg=" + str(error).encode())
        else:
            self._say(b"cmd=put_result rc=0 msg=success")

    def _get(self, words: Words) -> None:
        try:
            self._check_name(words)
        except PutRefused as error:
            self._say(b"cmd=get_result rc=-1 msg=" + str(error).encode())
            return
        value = self._space.find(words.get(b"key", b""))
        if value is None:
            self._say(b"cmd=get_result rc=-1 msg=key_not_found value=unknown")
        else:
            self._say(b"cmd=get_result rc=0 msg=success value=" + value)

    def _check_name(self, words: Words) -> None:
        if words.get(b"kvsname") != self._space.name:
            raise PutRefused("kvsname_is_of_another_program")

    def _barrier(self, _words: Words) -> None:
        self._space.enter_fence(self._rank, b"cmd=barrier_out\n")

    def _finalize(self, _words: Words) -> None:
        self.is_finalized = True
        self._space.finalized.add(self._rank)
        self._space.leave(self._rank)
        self._say(b"cmd=finalize_ack")

    def _abort(self, words: Words) -> None:
        text = words.get(b"exitcode", b"")
        code = int(text) if text.isdigit() and len(text) < 10 else 1
        raise Aborted(code & _CODE_MAX)

    def _no_names(self, words: Words) -> None:
        what = words[b"cmd"].partition(b"_")[0]
        self._say(b"cmd=%s_result rc=-1 msg=publishing_is_not_supported info=not_supported" % what)


_HANDLERS: dict[bytes, Callable[[Pmi1, Words], None]] = {
    b"init": Pmi1._init,
    b"get_maxes": Pmi1._maxes,
    b"get_appnum": Pmi1._appnum,
    b"get_universe_size": Pmi1._universe_size,
    b"get_my_kvsname": Pmi1._kvsname,
    b"put": Pmi1._put,
    b"get": Pmi1._get,
    b"barrier_in": Pmi1._barrier,
    b"finalize": Pmi1._finalize,
    b"abort": Pmi1._abort,
    b"publish_name": Pmi1._no_names,
    b"unpublish_name": Pmi1._no_names,
    b"lookup_name": Pmi1._no_names,
}
