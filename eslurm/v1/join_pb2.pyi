from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JoinFrame(_message.Message):
    __slots__ = ("request", "challenge", "proof", "reply")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    request: JoinRequest
    challenge: JoinChallenge
    proof: JoinProof
    reply: JoinReply
    def __init__(self, request: _Optional[_Union[JoinRequest, _Mapping]] = ..., challenge: _Optional[_Union[JoinChallenge, _Mapping]] = ..., proof: _Optional[_Union[JoinProof, _Mapping]] = ..., reply: _Optional[_Union[JoinReply, _Mapping]] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("role", "names", "public", "nonce", "token_id")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    role: str
    names: str
    public: bytes
    nonce: bytes
    token_id: bytes
    def __init__(self, role: _Optional[str] = ..., names: _Optional[str] = ..., public: _Optional[bytes] = ..., nonce: _Optional[bytes] = ..., token_id: _Optional[bytes] = ...) -> None: ...

class JoinChallenge(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    def __init__(self, nonce: _Optional[bytes] = ...) -> None: ...

class JoinProof(_message.Message):
    __slots__ = ("signature", "token_proof")
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_PROOF_FIELD_NUMBER: _ClassVar[int]
    signature: bytes
    token_proof: bytes
    def __init__(self, signature: _Optional[bytes] = ..., token_proof: _Optional[bytes] = ...) -> None: ...

class JoinReply(_message.Message):
    __slots__ = ("answer", "token_proof", "seals")
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    TOKEN_PROOF_FIELD_NUMBER: _ClassVar[int]
    SEALS_FIELD_NUMBER: _ClassVar[int]
    answer: bytes
    token_proof: bytes
    seals: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, answer: _Optional[bytes] = ..., token_proof: _Optional[bytes] = ..., seals: _Optional[_Iterable[bytes]] = ...) -> None: ...

class JoinAnswer(_message.Message):
    __slots__ = ("state", "text", "membership", "ring", "again_ms")
    STATE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    MEMBERSHIP_FIELD_NUMBER: _ClassVar[int]
    RING_FIELD_NUMBER: _ClassVar[int]
    AGAIN_MS_FIELD_NUMBER: _ClassVar[int]
    state: str
    text: str
    membership: bytes
    ring: bytes
    again_ms: int
    def __init__(self, state: _Optional[str] = ..., text: _Optional[str] = ..., membership: _Optional[bytes] = ..., ring: _Optional[bytes] = ..., again_ms: _Optional[int] = ...) -> None: ...
