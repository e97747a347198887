"""The part of libpmix that a server needs, by its binary interface, which is the same from version 3 on."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

LIBRARY = "libpmix.so.2"
SUCCESS, DONE_AT_ONCE, NOT_SUPPORTED = 0, -157, -47
EVERY_RANK = 0xFFFF_FFFE
_BOOL, _STRING, _UINT16, _UINT32, _INFO, _ARRAY, _RANK = 1, 3, 13, 14, 24, 39, 40
_NSPACE_BYTES, _KEY_BYTES = 256, 512

Entry: TypeAlias = tuple[str, str, Any]
"""Name, kind (`s`tring, `u`int32, uint`16`, `r`ank, `b`ool, `a`rray of entries) and value."""


class PmixError(Exception):
    """The library has refused something."""


class Proc(ctypes.Structure):
    _fields_ = (("nspace", ctypes.c_char * _NSPACE_BYTES), ("rank", ctypes.c_uint32))


class _Array(ctypes.Structure):
    _fields_ = (("type", ctypes.c_uint16), ("size", ctypes.c_size_t), ("array", ctypes.c_void_p))


class _Data(ctypes.Union):
    _fields_ = (
        ("flag", ctypes.c_bool),
        ("string", ctypes.c_char_p),
        ("uint16", ctypes.c_uint16),
        ("uint32", ctypes.c_uint32),
        ("array", ctypes.POINTER(_Array)),
        # Three words: a variable with its separator.
        ("room", ctypes.c_void_p * 3),
    )


class _Value(ctypes.Structure):
    _fields_ = (("type", ctypes.c_uint16), ("data", _Data))


class Info(ctypes.Structure):
    _fields_ = (("key", ctypes.c_char * _KEY_BYTES), ("flags", ctypes.c_uint32), ("value", _Value))


_PROCS = ctypes.POINTER(Proc)
_ANY, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_ON_OP = ctypes.CFUNCTYPE(None, _INT, _ANY)
_ON_RELEASE = ctypes.CFUNCTYPE(None, _ANY)
_ON_DATA = ctypes.CFUNCTYPE(None, _INT, _ANY, _SIZE, _ANY, _ANY, _ANY)
_CLIENT = ctypes.CFUNCTYPE(_INT, _PROCS, _ANY, _ANY, _ANY)
_ABORT = ctypes.CFUNCTYPE(_INT, _PROCS, _ANY, _INT, ctypes.c_char_p, _PROCS, _SIZE, _ANY, _ANY)
_FENCE = ctypes.CFUNCTYPE(_INT, _PROCS, _SIZE, _ANY, _SIZE, _ANY, _SIZE, _ANY, _ANY)
_OTHERS = 24


class _Module(ctypes.Structure):
    """Of the server's callbacks, the first four; the others are not served."""

    _fields_ = (
        ("connected", _CLIENT),
        ("finalized", _CLIENT),
        ("abort", _ABORT),
        ("fence", _FENCE),
        ("others", _ANY * _OTHERS),
    )


class Server:
    """The library's server. What ranks do is told in its own thread: `began` and `finalized` with a rank, `aborted` with the
    rank, its code and its text, `fenced` with the data of this node's ranks. What `finalized` and `fenced` get behind that
    answers them, once, from any thread.
    """

    def __init__(
        self,
        began: Callable[[int], None],
        finalized: Callable[[int, Callable[[], None]], None],
        aborted: Callable[[int, int, bytes], None],
        fenced: Callable[[bytes, Callable[[bytes], None]], None],
    ) -> None:
        """Raises OSError where the library is missing."""
        self._library = ctypes.CDLL(LIBRARY)
        self._kept: list[object] = []
        self._told: dict[int, object] = {}

        def on_connected(proc: Any, _object: int, _call: int, _data: int) -> int:
            began(int(proc[0].rank))
            return DONE_AT_ONCE

        def on_finalized(proc: Any, _object: int, call: int, data: int) -> int:
            finalized(int(proc[0].rank), lambda: _ON_OP(call)(SUCCESS, data))
            return SUCCESS

        def on_abort(
            proc: Any,
            _object: int,
            status: int,
            text: bytes,
            _procs: Any,
            _count: int,
            _call: int,
            _data: int,
        ) -> int:
            aborted(int(proc[0].rank), status, text or b"")
            return SUCCESS

        def on_fence(
            procs: Any, count: int, _infos: int, _ninfos: int, data: int, size: int, call: int, given: int
        ) -> int:
            if count != 1 or procs[0].rank != EVERY_RANK:
                return NOT_SUPPORTED
            own = ctypes.string_at(data, size) if size else b""
            fenced(own, lambda whole: self._answer(call, given, whole))
            return SUCCESS

        self._module = _Module(
            _CLIENT(on_connected), _CLIENT(on_finalized), _ABORT(on_abort), _FENCE(on_fence)
        )
        self._release = _ON_RELEASE(lambda number: self._told.pop(number, None))

    def start(self, entries: Sequence[Entry]) -> None:
        """Start the server. Raises `PmixError`."""
        self._check("PMIx_server_init", ctypes.byref(self._module), *self._infos(entries))

    def register(self, nspace: bytes, local: int, entries: Sequence[Entry]) -> None:
        """Tell of the program, of which so many ranks are here. Raises `PmixError`."""
        self._check("PMIx_server_register_nspace", nspace, local, *self._infos(entries), None, None)

    def admit(self, nspace: bytes, rank: int, uid: int, gid: int) -> None:
        """Let a rank of this user connect. Raises `PmixError`."""
        proc = Proc(nspace, rank)
        self._check("PMIx_server_register_client", ctypes.byref(proc), uid, gid, None, None, None)

    def variables(self, nspace: bytes, rank: int) -> dict[str, str]:
        """The variables by which a rank finds the server. Raises `PmixError`."""
        proc, found = Proc(nspace, rank), ctypes.POINTER(ctypes.c_char_p)()
        self._check("PMIx_server_setup_fork", ctypes.byref(proc), ctypes.byref(found))
        words: dict[str, str] = {}
        at = 0
        while text := found[at]:
            name, _, words[name] = text.decode().partition("=")
            at += 1
        return words

    def _answer(self, call: int, given: int, data: bytes) -> None:
        buffer = ctypes.create_string_buffer(data, len(data) or 1)
        address = ctypes.addressof(buffer)
        self._told[address] = buffer
        _ON_DATA(call)(SUCCESS, address, len(data), given, ctypes.cast(self._release, _ANY), address)

    def _check(self, function: str, *words: Any) -> None:
        code = self._library[function](*words)
        if code not in (SUCCESS, DONE_AT_ONCE):
            raise PmixError(f"{function} of {LIBRARY} ended with {code}")

    def _infos(self, entries: Iterable[Entry]) -> tuple[Any, ctypes.c_size_t]:
        made = [self._info(*entry) for entry in entries]
        array = (Info * len(made))(*made)
        self._kept.append(array)
        return array, ctypes.c_size_t(len(made))

    def _info(self, name: str, kind: str, value: Any) -> Info:
        info = Info(key=name.encode())
        data = info.value.data
        if kind == "s":
            info.value.type, data.string = _STRING, value
            self._kept.append(value)
        elif kind == "b":
            info.value.type, data.flag = _BOOL, value
        elif kind == "16":
            info.value.type, data.uint16 = _UINT16, value
        elif kind == "a":
            array, size = self._infos(value)
            whole = _Array(_INFO, size.value, ctypes.cast(array, _ANY))
            self._kept.append(whole)
            info.value.type, data.array = _ARRAY, ctypes.pointer(whole)
        else:
            info.value.type, data.uint32 = (_RANK if kind == "r" else _UINT32), value
        return info
