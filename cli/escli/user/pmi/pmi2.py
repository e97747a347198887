"""PMI-2: the answers to its messages (`compat.pmi2_messages`), and to those of PMIx's servers."""

from __future__ import annotations

from escli.user.pmi.space import Aborted, NodeFailed, PutRefused
from eslurm.compat.pmi2_messages import BadMessage, frame, parse, take_message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from escli.user.pmi.space import Space

    Words = Mapping[bytes, bytes]

_FAILED = 1
_TEXT_BYTES_MAX = 512
_AT_DIGITS_MAX = 9
_CODE_MAX = 255


class Pmi2:
    """One rank that speaks PMI-2, from behind the first line on, which is one of PMI-1."""

    def __init__(self, space: Space, rank: int) -> None:
        self._space = space
        self._rank = rank
        self.is_finalized = False

    def feed(self, buffer: bytearray) -> bool:
        """Serve one request off the buffer; False: none is whole. Raises `BadMessage`, `Aborted`."""
        message = take_message(buffer)
        if message is None:
            return False
        words = parse(message)
        handle = _HANDLERS.get(words.get(b"cmd", b""))
        if handle is None:
            raise BadMessage(f"an unknown request: {message[:64]!r}")
        handle(self, words)
        return True

    def _made(self, asked: Words, answer: Words, code: int = 0) -> bytes:
        # A library with threads finds by it which of them has asked.
        thread = {b"thrid": asked[b"thrid"]} if b"thrid" in asked else {}
        return frame({b"cmd": asked[b"cmd"] + b"-response", **thread, b"rc": b"%d" % code, **answer})

    def _say(self, asked: Words, answer: Words, code: int = 0) -> None:
        self._space.answer(self._rank, self._made(asked, answer, code))

    def _refuse(self, asked: Words, text: str) -> None:
        self._say(asked, {b"errmsg": text.encode()}, _FAILED)

    def _found(self, asked: Words, value: bytes | None) -> bytes:
        return self._made(
            asked, {b"found": b"FALSE"} if value is None else {b"found": b"TRUE", b"value": value}
        )

    def _fullinit(self, asked: Words) -> None:
        self._space.begun.add(self._rank)
        if asked.get(b"pmirank") != b"%d" % self._rank:
            raise BadMessage(f"calls itself rank {asked.get(b'pmirank', b'')[:16]!r}")
        self._say(
            asked,
            {
                b"pmi-version": b"2",
                b"pmi-subversion": b"0",
                b"rank": b"%d" % self._rank,
                b"size": b"%d" % self._space.size,
                b"appnum": b"0",
                b"debugged": b"FALSE",
                b"pmiverbose": b"FALSE",
            },
        )

    def _finalize(self, asked: Words) -> None:
        self.is_finalized = True
        self._space.finalized.add(self._rank)
        self._space.leave(self._rank)
        self._say(asked, {})

    def _abort(self, asked: Words) -> None:
        raise Aborted(1, asked.get(b"msg", b"")[:_TEXT_BYTES_MAX].decode(errors="replace"))

    def _job_id(self, asked: Words) -> None:
        self._say(asked, {b"jobid": self._space.name})

    def _put(self, asked: Words) -> None:
        self._keep(asked, self._space.put)

    def _put_attribute(self, asked: Words) -> None:
        self._keep(asked, self._space.put_attribute)

    def _keep(self, asked: Words, put: Callable[[int, bytes, bytes], None]) -> None:
        try:
            put(self._rank, asked.get(b"key", b""), asked.get(b"value", b""))
        except PutRefused as error:
            self._refuse(asked, str(error))
        else:
            self._say(asked, {})

    def _get(self, asked: Words) -> None:
        is_own = asked.get(b"jobid", b"") in (b"", self._space.name)
        value = self._space.find(asked.get(b"key", b"")) if is_own else None
        self._space.answer(self._rank, self._found(asked, value))

    def _fence(self, asked: Words) -> None:
        self._space.enter_fence(self._rank, self._made(asked, {}))

    def _job_attribute(self, asked: Words) -> None:
        value = self._space.find_job_attribute(asked.get(b"key", b""))
        self._space.answer(self._rank, self._found(asked, value))

    def _attribute(self, asked: Words) -> None:
        key = asked.get(b"key", b"")
        value = self._space.find_attribute(self._rank, key)
        if value is None and asked.get(b"wait") == b"TRUE":
            self._space.wait_for_attribute(self._rank, key, lambda value: self._found(asked, value))
        else:
            self._space.answer(self._rank, self._found(asked, value))

    def _node_put(self, asked: Words) -> None:
        self._space.exchange.bring(self._node, asked.get(b"data", b""))
        self._say(asked, {})

    def _node_fence(self, asked: Words) -> None:
        self._space.exchange.enter(self._node, lambda size: self._say(asked, {b"size": b"%d" % size}))

    def _node_get(self, asked: Words) -> None:
        text = asked.get(b"at", b"")
        at = int(text) if text.isdigit() and len(text) <= _AT_DIGITS_MAX else 0
        self._say(asked, {b"data": self._space.exchange.read(at)})

    def _node_failed(self, asked: Words) -> None:
        raise NodeFailed(asked.get(b"msg", b"")[:_TEXT_BYTES_MAX].decode(errors="replace"))

    def _rank_began(self, asked: Words) -> None:
        self._space.begun.add(self._neighbour(asked))
        self._say(asked, {})

    def _rank_finalized(self, asked: Words) -> None:
        self._space.finalized.add(self._neighbour(asked))
        self._say(asked, {})

    def _rank_aborted(self, asked: Words) -> None:
        rank = self._neighbour(asked)
        text = asked.get(b"msg", b"")[:_TEXT_BYTES_MAX].decode(errors="replace")
        code = asked.get(b"code", b"")
        raise Aborted(
            int(code) & _CODE_MAX if code.isdigit() and len(code) <= _AT_DIGITS_MAX else 1, text, rank
        )

    @property
    def _node(self) -> int:
        return self._space.node_of(self._rank)

    def _neighbour(self, asked: Words) -> int:
        """The rank of this node that a PMIx server speaks of. Raises `BadMessage`."""
        text = asked.get(b"of", b"")
        rank = int(text) if text.isdigit() and len(text) <= _AT_DIGITS_MAX else -1
        if not self._space.are_neighbours(self._rank, rank):
            raise BadMessage(f"speaks of rank {text[:16]!r}, which is not on its node")
        return rank

    def _not_supported(self, asked: Words) -> None:
        self._refuse(asked, f"{asked[b'cmd'].decode()} is not supported")


_HANDLERS: dict[bytes, Callable[[Pmi2, Words], None]] = {
    b"fullinit": Pmi2._fullinit,
    b"finalize": Pmi2._finalize,
    b"abort": Pmi2._abort,
    b"job-getid": Pmi2._job_id,
    b"kvs-put": Pmi2._put,
    b"kvs-get": Pmi2._get,
    b"kvs-fence": Pmi2._fence,
    b"info-getjobattr": Pmi2._job_attribute,
    b"info-putnodeattr": Pmi2._put_attribute,
    b"info-getnodeattr": Pmi2._attribute,
    b"node-put": Pmi2._node_put,
    b"node-fence": Pmi2._node_fence,
    b"node-get": Pmi2._node_get,
    b"node-failed": Pmi2._node_failed,
    b"rank-began": Pmi2._rank_began,
    b"rank-finalized": Pmi2._rank_finalized,
    b"rank-aborted": Pmi2._rank_aborted,
    b"spawn": Pmi2._not_supported,
    b"job-connect": Pmi2._not_supported,
    b"job-disconnect": Pmi2._not_supported,
    b"name-publish": Pmi2._not_supported,
    b"name-unpublish": Pmi2._not_supported,
    b"name-lookup": Pmi2._not_supported,
}
