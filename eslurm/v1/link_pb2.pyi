from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frame(_message.Message):
    __slots__ = ("traceparent", "book_revision", "items")
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    BOOK_REVISION_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    traceparent: str
    book_revision: int
    items: _containers.RepeatedCompositeFieldContainer[Item]
    def __init__(self, traceparent: _Optional[str] = ..., book_revision: _Optional[int] = ..., items: _Optional[_Iterable[_Union[Item, _Mapping]]] = ...) -> None: ...

class Item(_message.Message):
    __slots__ = ("hello", "hello_reply", "broadcast", "broadcast_ack", "broadcast_reply", "report", "report_ack", "book_pull", "book", "blob_request", "blob_chunk", "door_call", "door_reply", "credit", "unsupported", "bye", "open_bulk", "satellite_ping", "satellite_status", "key_ring", "revoked", "standby_status")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HELLO_REPLY_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_ACK_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_REPLY_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    REPORT_ACK_FIELD_NUMBER: _ClassVar[int]
    BOOK_PULL_FIELD_NUMBER: _ClassVar[int]
    BOOK_FIELD_NUMBER: _ClassVar[int]
    BLOB_REQUEST_FIELD_NUMBER: _ClassVar[int]
    BLOB_CHUNK_FIELD_NUMBER: _ClassVar[int]
    DOOR_CALL_FIELD_NUMBER: _ClassVar[int]
    DOOR_REPLY_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    UNSUPPORTED_FIELD_NUMBER: _ClassVar[int]
    BYE_FIELD_NUMBER: _ClassVar[int]
    OPEN_BULK_FIELD_NUMBER: _ClassVar[int]
    SATELLITE_PING_FIELD_NUMBER: _ClassVar[int]
    SATELLITE_STATUS_FIELD_NUMBER: _ClassVar[int]
    KEY_RING_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    STANDBY_STATUS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    hello_reply: HelloReply
    broadcast: Broadcast
    broadcast_ack: BroadcastAck
    broadcast_reply: BroadcastReply
    report: Report
    report_ack: ReportAck
    book_pull: BookPull
    book: Book
    blob_request: BlobRequest
    blob_chunk: BlobChunk
    door_call: DoorCall
    door_reply: DoorReply
    credit: Credit
    unsupported: Unsupported
    bye: Bye
    open_bulk: OpenBulk
    satellite_ping: SatellitePing
    satellite_status: SatelliteStatus
    key_ring: SealedStatement
    revoked: SealedStatement
    standby_status: StandbyStatus
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., hello_reply: _Optional[_Union[HelloReply, _Mapping]] = ..., broadcast: _Optional[_Union[Broadcast, _Mapping]] = ..., broadcast_ack: _Optional[_Union[BroadcastAck, _Mapping]] = ..., broadcast_reply: _Optional[_Union[BroadcastReply, _Mapping]] = ..., report: _Optional[_Union[Report, _Mapping]] = ..., report_ack: _Optional[_Union[ReportAck, _Mapping]] = ..., book_pull: _Optional[_Union[BookPull, _Mapping]] = ..., book: _Optional[_Union[Book, _Mapping]] = ..., blob_request: _Optional[_Union[BlobRequest, _Mapping]] = ..., blob_chunk: _Optional[_Union[BlobChunk, _Mapping]] = ..., door_call: _Optional[_Union[DoorCall, _Mapping]] = ..., door_reply: _Optional[_Union[DoorReply, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., unsupported: _Optional[_Union[Unsupported, _Mapping]] = ..., bye: _Optional[_Union[Bye, _Mapping]] = ..., open_bulk: _Optional[_Union[OpenBulk, _Mapping]] = ..., satellite_ping: _Optional[_Union[SatellitePing, _Mapping]] = ..., satellite_status: _Optional[_Union[SatelliteStatus, _Mapping]] = ..., key_ring: _Optional[_Union[SealedStatement, _Mapping]] = ..., revoked: _Optional[_Union[SealedStatement, _Mapping]] = ..., standby_status: _Optional[_Union[StandbyStatus, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("cluster", "protocol_min", "protocol_max", "build", "features", "role", "process", "endpoint", "epoch", "owner", "nonce", "proof", "proof_key", "challenge", "now_us", "ephemeral", "membership", "ring", "revoked_revision")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_MIN_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_MAX_FIELD_NUMBER: _ClassVar[int]
    BUILD_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    PROOF_KEY_FIELD_NUMBER: _ClassVar[int]
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    NOW_US_FIELD_NUMBER: _ClassVar[int]
    EPHEMERAL_FIELD_NUMBER: _ClassVar[int]
    MEMBERSHIP_FIELD_NUMBER: _ClassVar[int]
    RING_FIELD_NUMBER: _ClassVar[int]
    REVOKED_REVISION_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    protocol_min: int
    protocol_max: int
    build: str
    features: _containers.RepeatedScalarFieldContainer[str]
    role: str
    process: str
    endpoint: str
    epoch: int
    owner: str
    nonce: bytes
    proof: bytes
    proof_key: int
    challenge: bytes
    now_us: int
    ephemeral: bytes
    membership: bytes
    ring: bytes
    revoked_revision: int
    def __init__(self, cluster: _Optional[str] = ..., protocol_min: _Optional[int] = ..., protocol_max: _Optional[int] = ..., build: _Optional[str] = ..., features: _Optional[_Iterable[str]] = ..., role: _Optional[str] = ..., process: _Optional[str] = ..., endpoint: _Optional[str] = ..., epoch: _Optional[int] = ..., owner: _Optional[str] = ..., nonce: _Optional[bytes] = ..., proof: _Optional[bytes] = ..., proof_key: _Optional[int] = ..., challenge: _Optional[bytes] = ..., now_us: _Optional[int] = ..., ephemeral: _Optional[bytes] = ..., membership: _Optional[bytes] = ..., ring: _Optional[bytes] = ..., revoked_revision: _Optional[int] = ...) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ("hello", "refused", "protocol")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    refused: str
    protocol: int
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., refused: _Optional[str] = ..., protocol: _Optional[int] = ...) -> None: ...

class NodeList(_message.Message):
    __slots__ = ("start", "length")
    START_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    start: _containers.RepeatedScalarFieldContainer[int]
    length: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, start: _Optional[_Iterable[int]] = ..., length: _Optional[_Iterable[int]] = ...) -> None: ...

class SealedStatement(_message.Message):
    __slots__ = ("sealed",)
    SEALED_FIELD_NUMBER: _ClassVar[int]
    sealed: bytes
    def __init__(self, sealed: _Optional[bytes] = ...) -> None: ...

class Origin(_message.Message):
    __slots__ = ("role", "names", "serial")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    role: str
    names: str
    serial: bytes
    def __init__(self, role: _Optional[str] = ..., names: _Optional[str] = ..., serial: _Optional[bytes] = ...) -> None: ...

class Blob(_message.Message):
    __slots__ = ("sha256", "data")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    sha256: bytes
    data: bytes
    def __init__(self, sha256: _Optional[bytes] = ..., data: _Optional[bytes] = ...) -> None: ...

class Broadcast(_message.Message):
    __slots__ = ("id", "nodes", "width", "deadline_us", "kind", "command", "hop", "attachments", "grouping", "traced", "root_width", "predicted", "differences", "missing")
    ID_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_US_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    HOP_FIELD_NUMBER: _ClassVar[int]
    ATTACHMENTS_FIELD_NUMBER: _ClassVar[int]
    GROUPING_FIELD_NUMBER: _ClassVar[int]
    TRACED_FIELD_NUMBER: _ClassVar[int]
    ROOT_WIDTH_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    id: int
    nodes: NodeList
    width: int
    deadline_us: int
    kind: str
    command: bytes
    hop: int
    attachments: _containers.RepeatedCompositeFieldContainer[Blob]
    grouping: str
    traced: bool
    root_width: int
    predicted: NodeList
    differences: bool
    missing: NodeList
    def __init__(self, id: _Optional[int] = ..., nodes: _Optional[_Union[NodeList, _Mapping]] = ..., width: _Optional[int] = ..., deadline_us: _Optional[int] = ..., kind: _Optional[str] = ..., command: _Optional[bytes] = ..., hop: _Optional[int] = ..., attachments: _Optional[_Iterable[_Union[Blob, _Mapping]]] = ..., grouping: _Optional[str] = ..., traced: _Optional[bool] = ..., root_width: _Optional[int] = ..., predicted: _Optional[_Union[NodeList, _Mapping]] = ..., differences: _Optional[bool] = ..., missing: _Optional[_Union[NodeList, _Mapping]] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ("parent", "child", "hop", "nodes", "acked_us", "done_us", "how")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    CHILD_FIELD_NUMBER: _ClassVar[int]
    HOP_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    ACKED_US_FIELD_NUMBER: _ClassVar[int]
    DONE_US_FIELD_NUMBER: _ClassVar[int]
    HOW_FIELD_NUMBER: _ClassVar[int]
    parent: int
    child: int
    hop: int
    nodes: int
    acked_us: int
    done_us: int
    how: str
    def __init__(self, parent: _Optional[int] = ..., child: _Optional[int] = ..., hop: _Optional[int] = ..., nodes: _Optional[int] = ..., acked_us: _Optional[int] = ..., done_us: _Optional[int] = ..., how: _Optional[str] = ...) -> None: ...

class LevelCost(_message.Message):
    __slots__ = ("hop", "sends", "acked_sum_us", "acked_max_us", "done_max_us", "adopted")
    HOP_FIELD_NUMBER: _ClassVar[int]
    SENDS_FIELD_NUMBER: _ClassVar[int]
    ACKED_SUM_US_FIELD_NUMBER: _ClassVar[int]
    ACKED_MAX_US_FIELD_NUMBER: _ClassVar[int]
    DONE_MAX_US_FIELD_NUMBER: _ClassVar[int]
    ADOPTED_FIELD_NUMBER: _ClassVar[int]
    hop: int
    sends: int
    acked_sum_us: int
    acked_max_us: int
    done_max_us: int
    adopted: int
    def __init__(self, hop: _Optional[int] = ..., sends: _Optional[int] = ..., acked_sum_us: _Optional[int] = ..., acked_max_us: _Optional[int] = ..., done_max_us: _Optional[int] = ..., adopted: _Optional[int] = ...) -> None: ...

class Trace(_message.Message):
    __slots__ = ("spans", "levels", "omitted")
    SPANS_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    OMITTED_FIELD_NUMBER: _ClassVar[int]
    spans: _containers.RepeatedCompositeFieldContainer[Span]
    levels: _containers.RepeatedCompositeFieldContainer[LevelCost]
    omitted: int
    def __init__(self, spans: _Optional[_Iterable[_Union[Span, _Mapping]]] = ..., levels: _Optional[_Iterable[_Union[LevelCost, _Mapping]]] = ..., omitted: _Optional[int] = ...) -> None: ...

class BroadcastAck(_message.Message):
    __slots__ = ("id", "nodes", "refused")
    ID_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    id: int
    nodes: NodeList
    refused: str
    def __init__(self, id: _Optional[int] = ..., nodes: _Optional[_Union[NodeList, _Mapping]] = ..., refused: _Optional[str] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("nodes", "status", "text", "payload", "code")
    NODES_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    nodes: NodeList
    status: str
    text: str
    payload: bytes
    code: int
    def __init__(self, nodes: _Optional[_Union[NodeList, _Mapping]] = ..., status: _Optional[str] = ..., text: _Optional[str] = ..., payload: _Optional[bytes] = ..., code: _Optional[int] = ...) -> None: ...

class BroadcastReply(_message.Message):
    __slots__ = ("id", "final", "outcomes", "heads", "as_expected", "trace")
    ID_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    HEADS_FIELD_NUMBER: _ClassVar[int]
    AS_EXPECTED_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    id: int
    final: bool
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    heads: NodeList
    as_expected: bool
    trace: Trace
    def __init__(self, id: _Optional[int] = ..., final: _Optional[bool] = ..., outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ..., heads: _Optional[_Union[NodeList, _Mapping]] = ..., as_expected: _Optional[bool] = ..., trace: _Optional[_Union[Trace, _Mapping]] = ...) -> None: ...

class SatellitePing(_message.Message):
    __slots__ = ("seq",)
    SEQ_FIELD_NUMBER: _ClassVar[int]
    seq: int
    def __init__(self, seq: _Optional[int] = ...) -> None: ...

class StandbyStatus(_message.Message):
    __slots__ = ("configuration",)
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    configuration: str
    def __init__(self, configuration: _Optional[str] = ...) -> None: ...

class SatelliteStatus(_message.Message):
    __slots__ = ("seq", "tasks", "nodes", "rss_bytes", "sockets", "lag_us", "queued")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    SOCKETS_FIELD_NUMBER: _ClassVar[int]
    LAG_US_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    seq: int
    tasks: int
    nodes: int
    rss_bytes: int
    sockets: int
    lag_us: int
    queued: int
    def __init__(self, seq: _Optional[int] = ..., tasks: _Optional[int] = ..., nodes: _Optional[int] = ..., rss_bytes: _Optional[int] = ..., sockets: _Optional[int] = ..., lag_us: _Optional[int] = ..., queued: _Optional[int] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("process", "seq", "body", "origin")
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    process: str
    seq: int
    body: bytes
    origin: Origin
    def __init__(self, process: _Optional[str] = ..., seq: _Optional[int] = ..., body: _Optional[bytes] = ..., origin: _Optional[_Union[Origin, _Mapping]] = ...) -> None: ...

class ReportAck(_message.Message):
    __slots__ = ("process", "seqs", "registrations", "revision")
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    SEQS_FIELD_NUMBER: _ClassVar[int]
    REGISTRATIONS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    process: str
    seqs: _containers.RepeatedScalarFieldContainer[int]
    registrations: bytes
    revision: int
    def __init__(self, process: _Optional[str] = ..., seqs: _Optional[_Iterable[int]] = ..., registrations: _Optional[bytes] = ..., revision: _Optional[int] = ...) -> None: ...

class BookPull(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class BookEntry(_message.Message):
    __slots__ = ("number", "name", "endpoint", "incarnation")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    number: int
    name: str
    endpoint: str
    incarnation: int
    def __init__(self, number: _Optional[int] = ..., name: _Optional[str] = ..., endpoint: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Book(_message.Message):
    __slots__ = ("revision", "entries", "more", "sealed")
    FROM_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    revision: int
    entries: _containers.RepeatedCompositeFieldContainer[BookEntry]
    more: bool
    sealed: bytes
    def __init__(self, revision: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[BookEntry, _Mapping]]] = ..., more: _Optional[bool] = ..., sealed: _Optional[bytes] = ..., **kwargs) -> None: ...

class BlobRequest(_message.Message):
    __slots__ = ("sha256",)
    SHA256_FIELD_NUMBER: _ClassVar[int]
    sha256: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, sha256: _Optional[_Iterable[bytes]] = ...) -> None: ...

class BlobChunk(_message.Message):
    __slots__ = ("sha256", "offset", "total", "data", "missing")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    sha256: bytes
    offset: int
    total: int
    data: bytes
    missing: bool
    def __init__(self, sha256: _Optional[bytes] = ..., offset: _Optional[int] = ..., total: _Optional[int] = ..., data: _Optional[bytes] = ..., missing: _Optional[bool] = ...) -> None: ...

class DoorCall(_message.Message):
    __slots__ = ("process", "call", "method", "request", "request_id", "deadline_us", "uid", "gid", "node", "retry", "more", "part", "origin", "user")
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_US_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    GID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    process: str
    call: int
    method: str
    request: bytes
    request_id: bytes
    deadline_us: int
    uid: int
    gid: int
    node: int
    retry: bool
    more: bool
    part: int
    origin: Origin
    user: str
    def __init__(self, process: _Optional[str] = ..., call: _Optional[int] = ..., method: _Optional[str] = ..., request: _Optional[bytes] = ..., request_id: _Optional[bytes] = ..., deadline_us: _Optional[int] = ..., uid: _Optional[int] = ..., gid: _Optional[int] = ..., node: _Optional[int] = ..., retry: _Optional[bool] = ..., more: _Optional[bool] = ..., part: _Optional[int] = ..., origin: _Optional[_Union[Origin, _Mapping]] = ..., user: _Optional[str] = ...) -> None: ...

class DoorReply(_message.Message):
    __slots__ = ("process", "call", "status", "text", "reply", "retry_after_ms", "more")
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    process: str
    call: int
    status: int
    text: str
    reply: bytes
    retry_after_ms: int
    more: bool
    def __init__(self, process: _Optional[str] = ..., call: _Optional[int] = ..., status: _Optional[int] = ..., text: _Optional[str] = ..., reply: _Optional[bytes] = ..., retry_after_ms: _Optional[int] = ..., more: _Optional[bool] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("bytes",)
    BYTES_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    def __init__(self, bytes: _Optional[int] = ...) -> None: ...

class OpenBulk(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Bye(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Unsupported(_message.Message):
    __slots__ = ("field",)
    FIELD_FIELD_NUMBER: _ClassVar[int]
    field: int
    def __init__(self, field: _Optional[int] = ...) -> None: ...
