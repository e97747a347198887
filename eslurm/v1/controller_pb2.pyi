from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PingRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PingReply(_message.Message):
    __slots__ = ("cluster", "owner", "epoch", "revision", "build", "now_us", "nodes", "nodes_up", "jobs_pending", "jobs_running", "started_us")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    BUILD_FIELD_NUMBER: _ClassVar[int]
    NOW_US_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    NODES_UP_FIELD_NUMBER: _ClassVar[int]
    JOBS_PENDING_FIELD_NUMBER: _ClassVar[int]
    JOBS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    STARTED_US_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    owner: str
    epoch: int
    revision: int
    build: str
    now_us: int
    nodes: int
    nodes_up: int
    jobs_pending: int
    jobs_running: int
    started_us: int
    def __init__(self, cluster: _Optional[str] = ..., owner: _Optional[str] = ..., epoch: _Optional[int] = ..., revision: _Optional[int] = ..., build: _Optional[str] = ..., now_us: _Optional[int] = ..., nodes: _Optional[int] = ..., nodes_up: _Optional[int] = ..., jobs_pending: _Optional[int] = ..., jobs_running: _Optional[int] = ..., started_us: _Optional[int] = ...) -> None: ...

class ResourceRequest(_message.Message):
    __slots__ = ("tasks", "cpus_per_task", "nodes_min", "nodes_max", "tasks_per_node", "memory_per_node_mib", "memory_per_cpu_mib", "exclusive", "include", "exclude", "per_node", "per_task", "wide", "constraint", "chunks", "place", "partition", "module")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    CPUS_PER_TASK_FIELD_NUMBER: _ClassVar[int]
    NODES_MIN_FIELD_NUMBER: _ClassVar[int]
    NODES_MAX_FIELD_NUMBER: _ClassVar[int]
    TASKS_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PER_NODE_MIB_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PER_CPU_MIB_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    PER_NODE_FIELD_NUMBER: _ClassVar[int]
    PER_TASK_FIELD_NUMBER: _ClassVar[int]
    WIDE_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    MODULE_FIELD_NUMBER: _ClassVar[int]
    tasks: int
    cpus_per_task: int
    nodes_min: int
    nodes_max: int
    tasks_per_node: int
    memory_per_node_mib: int
    memory_per_cpu_mib: int
    exclusive: bool
    include: _containers.RepeatedScalarFieldContainer[str]
    exclude: _containers.RepeatedScalarFieldContainer[str]
    per_node: _containers.RepeatedCompositeFieldContainer[ResourceAmount]
    per_task: _containers.RepeatedCompositeFieldContainer[ResourceAmount]
    wide: _containers.RepeatedCompositeFieldContainer[ResourceAmount]
    constraint: str
    chunks: _containers.RepeatedCompositeFieldContainer[Chunk]
    place: str
    partition: str
    module: str
    def __init__(self, tasks: _Optional[int] = ..., cpus_per_task: _Optional[int] = ..., nodes_min: _Optional[int] = ..., nodes_max: _Optional[int] = ..., tasks_per_node: _Optional[int] = ..., memory_per_node_mib: _Optional[int] = ..., memory_per_cpu_mib: _Optional[int] = ..., exclusive: _Optional[bool] = ..., include: _Optional[_Iterable[str]] = ..., exclude: _Optional[_Iterable[str]] = ..., per_node: _Optional[_Iterable[_Union[ResourceAmount, _Mapping]]] = ..., per_task: _Optional[_Iterable[_Union[ResourceAmount, _Mapping]]] = ..., wide: _Optional[_Iterable[_Union[ResourceAmount, _Mapping]]] = ..., constraint: _Optional[str] = ..., chunks: _Optional[_Iterable[_Union[Chunk, _Mapping]]] = ..., place: _Optional[str] = ..., partition: _Optional[str] = ..., module: _Optional[str] = ...) -> None: ...

class ResourceAmount(_message.Message):
    __slots__ = ("name", "items")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    name: str
    items: int
    def __init__(self, name: _Optional[str] = ..., items: _Optional[int] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("count", "cores", "memory_mib", "resources", "constraint")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    count: int
    cores: int
    memory_mib: int
    resources: _containers.RepeatedCompositeFieldContainer[ResourceAmount]
    constraint: str
    def __init__(self, count: _Optional[int] = ..., cores: _Optional[int] = ..., memory_mib: _Optional[int] = ..., resources: _Optional[_Iterable[_Union[ResourceAmount, _Mapping]]] = ..., constraint: _Optional[str] = ...) -> None: ...

class Dependency(_message.Message):
    __slots__ = ("kind", "job_id", "delay_s", "task", "part")
    KIND_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    DELAY_S_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    kind: str
    job_id: int
    delay_s: int
    task: int
    part: int
    def __init__(self, kind: _Optional[str] = ..., job_id: _Optional[int] = ..., delay_s: _Optional[int] = ..., task: _Optional[int] = ..., part: _Optional[int] = ...) -> None: ...

class Dependencies(_message.Message):
    __slots__ = ("all", "any")
    ALL_FIELD_NUMBER: _ClassVar[int]
    ANY_FIELD_NUMBER: _ClassVar[int]
    all: _containers.RepeatedCompositeFieldContainer[Dependency]
    any: bool
    def __init__(self, all: _Optional[_Iterable[_Union[Dependency, _Mapping]]] = ..., any: _Optional[bool] = ...) -> None: ...

class TaskRange(_message.Message):
    __slots__ = ("first", "last", "step")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    step: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class JobRequest(_message.Message):
    __slots__ = ("name", "partition", "components", "script", "script_hash", "environment", "environment_hash", "work_dir", "time_limit_s", "output", "error", "input", "truncate_output", "begin_us", "priority", "requeue", "held", "dependencies", "array", "array_limit", "arguments", "account", "comment", "umask", "qos", "reservation", "nice", "start_at_us", "deadline_us", "warn_signal", "warn_before_s", "warn_batch_only", "warn_script", "traceparent", "dependency_any", "no_kill", "gateway", "cells", "span", "retry_on", "retries_max", "grow_time_percent", "max_time_s", "grow_memory_percent", "max_memory_mib", "elastic", "cooperate", "borrow", "wckey", "command", "mail_type", "mail_user", "no_script", "attended")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    COMPONENTS_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_HASH_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_HASH_FIELD_NUMBER: _ClassVar[int]
    WORK_DIR_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_S_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    BEGIN_US_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    REQUEUE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    DEPENDENCIES_FIELD_NUMBER: _ClassVar[int]
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    ARRAY_LIMIT_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    UMASK_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    NICE_FIELD_NUMBER: _ClassVar[int]
    START_AT_US_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_US_FIELD_NUMBER: _ClassVar[int]
    WARN_SIGNAL_FIELD_NUMBER: _ClassVar[int]
    WARN_BEFORE_S_FIELD_NUMBER: _ClassVar[int]
    WARN_BATCH_ONLY_FIELD_NUMBER: _ClassVar[int]
    WARN_SCRIPT_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    DEPENDENCY_ANY_FIELD_NUMBER: _ClassVar[int]
    NO_KILL_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    SPAN_FIELD_NUMBER: _ClassVar[int]
    RETRY_ON_FIELD_NUMBER: _ClassVar[int]
    RETRIES_MAX_FIELD_NUMBER: _ClassVar[int]
    GROW_TIME_PERCENT_FIELD_NUMBER: _ClassVar[int]
    MAX_TIME_S_FIELD_NUMBER: _ClassVar[int]
    GROW_MEMORY_PERCENT_FIELD_NUMBER: _ClassVar[int]
    MAX_MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    ELASTIC_FIELD_NUMBER: _ClassVar[int]
    COOPERATE_FIELD_NUMBER: _ClassVar[int]
    BORROW_FIELD_NUMBER: _ClassVar[int]
    WCKEY_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    MAIL_TYPE_FIELD_NUMBER: _ClassVar[int]
    MAIL_USER_FIELD_NUMBER: _ClassVar[int]
    NO_SCRIPT_FIELD_NUMBER: _ClassVar[int]
    ATTENDED_FIELD_NUMBER: _ClassVar[int]
    name: str
    partition: str
    components: _containers.RepeatedCompositeFieldContainer[ResourceRequest]
    script: bytes
    script_hash: bytes
    environment: bytes
    environment_hash: bytes
    work_dir: str
    time_limit_s: int
    output: str
    error: str
    input: str
    truncate_output: bool
    begin_us: int
    priority: int
    requeue: bool
    held: bool
    dependencies: _containers.RepeatedCompositeFieldContainer[Dependency]
    array: _containers.RepeatedCompositeFieldContainer[TaskRange]
    array_limit: int
    arguments: _containers.RepeatedScalarFieldContainer[str]
    account: str
    comment: str
    umask: int
    qos: str
    reservation: str
    nice: int
    start_at_us: int
    deadline_us: int
    warn_signal: int
    warn_before_s: int
    warn_batch_only: bool
    warn_script: str
    traceparent: str
    dependency_any: bool
    no_kill: bool
    gateway: GatewayRequest
    cells: _containers.RepeatedScalarFieldContainer[str]
    span: bool
    retry_on: _containers.RepeatedScalarFieldContainer[str]
    retries_max: int
    grow_time_percent: int
    max_time_s: int
    grow_memory_percent: int
    max_memory_mib: int
    elastic: bool
    cooperate: str
    borrow: str
    wckey: str
    command: str
    mail_type: str
    mail_user: str
    no_script: bool
    attended: bool
    def __init__(self, name: _Optional[str] = ..., partition: _Optional[str] = ..., components: _Optional[_Iterable[_Union[ResourceRequest, _Mapping]]] = ..., script: _Optional[bytes] = ..., script_hash: _Optional[bytes] = ..., environment: _Optional[bytes] = ..., environment_hash: _Optional[bytes] = ..., work_dir: _Optional[str] = ..., time_limit_s: _Optional[int] = ..., output: _Optional[str] = ..., error: _Optional[str] = ..., input: _Optional[str] = ..., truncate_output: _Optional[bool] = ..., begin_us: _Optional[int] = ..., priority: _Optional[int] = ..., requeue: _Optional[bool] = ..., held: _Optional[bool] = ..., dependencies: _Optional[_Iterable[_Union[Dependency, _Mapping]]] = ..., array: _Optional[_Iterable[_Union[TaskRange, _Mapping]]] = ..., array_limit: _Optional[int] = ..., arguments: _Optional[_Iterable[str]] = ..., account: _Optional[str] = ..., comment: _Optional[str] = ..., umask: _Optional[int] = ..., qos: _Optional[str] = ..., reservation: _Optional[str] = ..., nice: _Optional[int] = ..., start_at_us: _Optional[int] = ..., deadline_us: _Optional[int] = ..., warn_signal: _Optional[int] = ..., warn_before_s: _Optional[int] = ..., warn_batch_only: _Optional[bool] = ..., warn_script: _Optional[str] = ..., traceparent: _Optional[str] = ..., dependency_any: _Optional[bool] = ..., no_kill: _Optional[bool] = ..., gateway: _Optional[_Union[GatewayRequest, _Mapping]] = ..., cells: _Optional[_Iterable[str]] = ..., span: _Optional[bool] = ..., retry_on: _Optional[_Iterable[str]] = ..., retries_max: _Optional[int] = ..., grow_time_percent: _Optional[int] = ..., max_time_s: _Optional[int] = ..., grow_memory_percent: _Optional[int] = ..., max_memory_mib: _Optional[int] = ..., elastic: _Optional[bool] = ..., cooperate: _Optional[str] = ..., borrow: _Optional[str] = ..., wckey: _Optional[str] = ..., command: _Optional[str] = ..., mail_type: _Optional[str] = ..., mail_user: _Optional[str] = ..., no_script: _Optional[bool] = ..., attended: _Optional[bool] = ...) -> None: ...

class GatewayRequest(_message.Message):
    __slots__ = ("count", "plugin", "file", "binary", "env", "per_node", "cleanup", "quiet", "debug", "apart")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    BINARY_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    PER_NODE_FIELD_NUMBER: _ClassVar[int]
    CLEANUP_FIELD_NUMBER: _ClassVar[int]
    QUIET_FIELD_NUMBER: _ClassVar[int]
    DEBUG_FIELD_NUMBER: _ClassVar[int]
    APART_FIELD_NUMBER: _ClassVar[int]
    count: int
    plugin: str
    file: str
    binary: str
    env: _containers.RepeatedScalarFieldContainer[str]
    per_node: int
    cleanup: bool
    quiet: bool
    debug: bool
    apart: bool
    def __init__(self, count: _Optional[int] = ..., plugin: _Optional[str] = ..., file: _Optional[str] = ..., binary: _Optional[str] = ..., env: _Optional[_Iterable[str]] = ..., per_node: _Optional[int] = ..., cleanup: _Optional[bool] = ..., quiet: _Optional[bool] = ..., debug: _Optional[bool] = ..., apart: _Optional[bool] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("jobs", "test_only", "packs", "arrival", "guest_of")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    TEST_ONLY_FIELD_NUMBER: _ClassVar[int]
    PACKS_FIELD_NUMBER: _ClassVar[int]
    ARRIVAL_FIELD_NUMBER: _ClassVar[int]
    GUEST_OF_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobRequest]
    test_only: bool
    packs: _containers.RepeatedCompositeFieldContainer[PackRequest]
    arrival: Arrival
    guest_of: GuestOf
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobRequest, _Mapping]]] = ..., test_only: _Optional[bool] = ..., packs: _Optional[_Iterable[_Union[PackRequest, _Mapping]]] = ..., arrival: _Optional[_Union[Arrival, _Mapping]] = ..., guest_of: _Optional[_Union[GuestOf, _Mapping]] = ...) -> None: ...

class GuestOf(_message.Message):
    __slots__ = ("job_id", "serial", "since_us")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    SINCE_US_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    serial: int
    since_us: int
    def __init__(self, job_id: _Optional[int] = ..., serial: _Optional[int] = ..., since_us: _Optional[int] = ...) -> None: ...

class Arrival(_message.Message):
    __slots__ = ("job_id", "serial")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    serial: int
    def __init__(self, job_id: _Optional[int] = ..., serial: _Optional[int] = ...) -> None: ...

class PackRequest(_message.Message):
    __slots__ = ("first", "delays_s", "cancels")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    DELAYS_S_FIELD_NUMBER: _ClassVar[int]
    CANCELS_FIELD_NUMBER: _ClassVar[int]
    first: int
    delays_s: _containers.RepeatedScalarFieldContainer[int]
    cancels: bool
    def __init__(self, first: _Optional[int] = ..., delays_s: _Optional[_Iterable[int]] = ..., cancels: _Optional[bool] = ...) -> None: ...

class TestAnswer(_message.Message):
    __slots__ = ("answer", "start_us", "nodes", "reasons", "earliest_us", "latest_us", "refused")
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    START_US_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_US_FIELD_NUMBER: _ClassVar[int]
    LATEST_US_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    answer: str
    start_us: int
    nodes: str
    reasons: _containers.RepeatedCompositeFieldContainer[Reason]
    earliest_us: int
    latest_us: int
    refused: bool
    def __init__(self, answer: _Optional[str] = ..., start_us: _Optional[int] = ..., nodes: _Optional[str] = ..., reasons: _Optional[_Iterable[_Union[Reason, _Mapping]]] = ..., earliest_us: _Optional[int] = ..., latest_us: _Optional[int] = ..., refused: _Optional[bool] = ...) -> None: ...

class SubmitReply(_message.Message):
    __slots__ = ("job_ids", "revision", "test_answer", "test_start_us", "test_nodes", "test_reasons", "test_earliest_us", "test_latest_us", "tests", "now_us", "warnings")
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TEST_ANSWER_FIELD_NUMBER: _ClassVar[int]
    TEST_START_US_FIELD_NUMBER: _ClassVar[int]
    TEST_NODES_FIELD_NUMBER: _ClassVar[int]
    TEST_REASONS_FIELD_NUMBER: _ClassVar[int]
    TEST_EARLIEST_US_FIELD_NUMBER: _ClassVar[int]
    TEST_LATEST_US_FIELD_NUMBER: _ClassVar[int]
    TESTS_FIELD_NUMBER: _ClassVar[int]
    NOW_US_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    job_ids: _containers.RepeatedScalarFieldContainer[int]
    revision: int
    test_answer: str
    test_start_us: int
    test_nodes: str
    test_reasons: _containers.RepeatedCompositeFieldContainer[Reason]
    test_earliest_us: int
    test_latest_us: int
    tests: _containers.RepeatedCompositeFieldContainer[TestAnswer]
    now_us: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job_ids: _Optional[_Iterable[int]] = ..., revision: _Optional[int] = ..., test_answer: _Optional[str] = ..., test_start_us: _Optional[int] = ..., test_nodes: _Optional[str] = ..., test_reasons: _Optional[_Iterable[_Union[Reason, _Mapping]]] = ..., test_earliest_us: _Optional[int] = ..., test_latest_us: _Optional[int] = ..., tests: _Optional[_Iterable[_Union[TestAnswer, _Mapping]]] = ..., now_us: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class JobRef(_message.Message):
    __slots__ = ("job_id", "task", "part", "cell")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    CELL_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    task: int
    part: int
    cell: str
    def __init__(self, job_id: _Optional[int] = ..., task: _Optional[int] = ..., part: _Optional[int] = ..., cell: _Optional[str] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("jobs", "user", "name", "partition", "state", "signal", "lost", "reach", "cron")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobRef]
    user: str
    name: str
    partition: str
    state: str
    signal: int
    lost: bool
    reach: str
    cron: bool
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobRef, _Mapping]]] = ..., user: _Optional[str] = ..., name: _Optional[str] = ..., partition: _Optional[str] = ..., state: _Optional[str] = ..., signal: _Optional[int] = ..., lost: _Optional[bool] = ..., reach: _Optional[str] = ..., cron: _Optional[bool] = ...) -> None: ...

class HoldRequest(_message.Message):
    __slots__ = ("jobs", "release")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobRef]
    release: bool
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobRef, _Mapping]]] = ..., release: _Optional[bool] = ...) -> None: ...

class RequeueRequest(_message.Message):
    __slots__ = ("jobs", "hold")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobRef]
    hold: bool
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobRef, _Mapping]]] = ..., hold: _Optional[bool] = ...) -> None: ...

class UpdateJobRequest(_message.Message):
    __slots__ = ("job", "name", "partition", "time_limit_s", "priority", "begin_us", "comment", "nodes_min", "nodes_max", "array_limit", "qos", "account", "reservation", "nice", "deadline_us", "constraint", "request", "was", "dependencies", "dry_run", "wckey", "output", "error", "input", "work_dir")
    JOB_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_S_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    BEGIN_US_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    NODES_MIN_FIELD_NUMBER: _ClassVar[int]
    NODES_MAX_FIELD_NUMBER: _ClassVar[int]
    ARRAY_LIMIT_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    NICE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_US_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    WAS_FIELD_NUMBER: _ClassVar[int]
    DEPENDENCIES_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    WCKEY_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    WORK_DIR_FIELD_NUMBER: _ClassVar[int]
    job: JobRef
    name: str
    partition: str
    time_limit_s: int
    priority: int
    begin_us: int
    comment: str
    nodes_min: int
    nodes_max: int
    array_limit: int
    qos: str
    account: str
    reservation: str
    nice: int
    deadline_us: int
    constraint: str
    request: ResourceRequest
    was: _containers.RepeatedScalarFieldContainer[str]
    dependencies: Dependencies
    dry_run: bool
    wckey: str
    output: str
    error: str
    input: str
    work_dir: str
    def __init__(self, job: _Optional[_Union[JobRef, _Mapping]] = ..., name: _Optional[str] = ..., partition: _Optional[str] = ..., time_limit_s: _Optional[int] = ..., priority: _Optional[int] = ..., begin_us: _Optional[int] = ..., comment: _Optional[str] = ..., nodes_min: _Optional[int] = ..., nodes_max: _Optional[int] = ..., array_limit: _Optional[int] = ..., qos: _Optional[str] = ..., account: _Optional[str] = ..., reservation: _Optional[str] = ..., nice: _Optional[int] = ..., deadline_us: _Optional[int] = ..., constraint: _Optional[str] = ..., request: _Optional[_Union[ResourceRequest, _Mapping]] = ..., was: _Optional[_Iterable[str]] = ..., dependencies: _Optional[_Union[Dependencies, _Mapping]] = ..., dry_run: _Optional[bool] = ..., wckey: _Optional[str] = ..., output: _Optional[str] = ..., error: _Optional[str] = ..., input: _Optional[str] = ..., work_dir: _Optional[str] = ...) -> None: ...

class UpdateNodesRequest(_message.Message):
    __slots__ = ("names", "action", "reason")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    action: str
    reason: str
    def __init__(self, names: _Optional[_Iterable[str]] = ..., action: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("what", "code", "text")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    what: str
    code: str
    text: str
    def __init__(self, what: _Optional[str] = ..., code: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class ChangeReply(_message.Message):
    __slots__ = ("count", "problems", "revision", "notes")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    count: int
    problems: _containers.RepeatedCompositeFieldContainer[Problem]
    revision: int
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, count: _Optional[int] = ..., problems: _Optional[_Iterable[_Union[Problem, _Mapping]]] = ..., revision: _Optional[int] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class JobsRequest(_message.Message):
    __slots__ = ("jobs", "user", "partition", "states", "name", "after_revision", "finished_too", "asked_too")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    AFTER_REVISION_FIELD_NUMBER: _ClassVar[int]
    FINISHED_TOO_FIELD_NUMBER: _ClassVar[int]
    ASKED_TOO_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobRef]
    user: str
    partition: str
    states: _containers.RepeatedScalarFieldContainer[str]
    name: str
    after_revision: int
    finished_too: bool
    asked_too: bool
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobRef, _Mapping]]] = ..., user: _Optional[str] = ..., partition: _Optional[str] = ..., states: _Optional[_Iterable[str]] = ..., name: _Optional[str] = ..., after_revision: _Optional[int] = ..., finished_too: _Optional[bool] = ..., asked_too: _Optional[bool] = ...) -> None: ...

class PartInfo(_message.Message):
    __slots__ = ("partition", "nodes", "tasks", "cpus", "memory_mib", "node_names", "resources", "constraint", "asked", "part", "ended_us")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    NODE_NAMES_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    ENDED_US_FIELD_NUMBER: _ClassVar[int]
    partition: str
    nodes: int
    tasks: int
    cpus: int
    memory_mib: int
    node_names: str
    resources: str
    constraint: str
    asked: _containers.RepeatedScalarFieldContainer[str]
    part: int
    ended_us: int
    def __init__(self, partition: _Optional[str] = ..., nodes: _Optional[int] = ..., tasks: _Optional[int] = ..., cpus: _Optional[int] = ..., memory_mib: _Optional[int] = ..., node_names: _Optional[str] = ..., resources: _Optional[str] = ..., constraint: _Optional[str] = ..., asked: _Optional[_Iterable[str]] = ..., part: _Optional[int] = ..., ended_us: _Optional[int] = ...) -> None: ...

class JobInfo(_message.Message):
    __slots__ = ("job_id", "array_job_id", "array_task", "array_tasks_left", "name", "user", "uid", "account", "partition", "state", "reason", "priority", "submitted_us", "begin_us", "started_us", "ended_us", "time_limit_s", "nodes", "tasks", "cpus", "memory_mib", "node_names", "exit_code", "exit_signal", "exit_text", "attempts", "work_dir", "output", "error", "dependencies", "requeue", "comment", "planned_start_us", "reason_text", "tasks_running", "tasks_done", "tasks_failed", "qos", "reservation", "nice", "deadline_us", "resources", "constraint", "planned_nodes", "paused_us", "suspended_us", "forecast", "first_estimate_s", "planned_earliest_us", "planned_latest_us", "trace", "asked", "parts", "no_kill", "pack_id", "pack_index", "pack_size", "delay_s", "pack_start_us", "gateways", "gateway_names", "pack_cancels", "pack_failed", "home", "owner", "guests", "guest_of", "span", "retries", "retry_on", "retry_text", "wasted_s", "wasted_cpu_s", "elastic", "growth_id", "grows", "cooperate", "borrow", "cores", "loans", "wckey", "command", "mail_type", "mail_user", "details", "request", "no_script", "attended", "cron")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ARRAY_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ARRAY_TASK_FIELD_NUMBER: _ClassVar[int]
    ARRAY_TASKS_LEFT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_US_FIELD_NUMBER: _ClassVar[int]
    BEGIN_US_FIELD_NUMBER: _ClassVar[int]
    STARTED_US_FIELD_NUMBER: _ClassVar[int]
    ENDED_US_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_S_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    NODE_NAMES_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    EXIT_SIGNAL_FIELD_NUMBER: _ClassVar[int]
    EXIT_TEXT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    WORK_DIR_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DEPENDENCIES_FIELD_NUMBER: _ClassVar[int]
    REQUEUE_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    PLANNED_START_US_FIELD_NUMBER: _ClassVar[int]
    REASON_TEXT_FIELD_NUMBER: _ClassVar[int]
    TASKS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    TASKS_DONE_FIELD_NUMBER: _ClassVar[int]
    TASKS_FAILED_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    NICE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_US_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    PLANNED_NODES_FIELD_NUMBER: _ClassVar[int]
    PAUSED_US_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_US_FIELD_NUMBER: _ClassVar[int]
    FORECAST_FIELD_NUMBER: _ClassVar[int]
    FIRST_ESTIMATE_S_FIELD_NUMBER: _ClassVar[int]
    PLANNED_EARLIEST_US_FIELD_NUMBER: _ClassVar[int]
    PLANNED_LATEST_US_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    NO_KILL_FIELD_NUMBER: _ClassVar[int]
    PACK_ID_FIELD_NUMBER: _ClassVar[int]
    PACK_INDEX_FIELD_NUMBER: _ClassVar[int]
    PACK_SIZE_FIELD_NUMBER: _ClassVar[int]
    DELAY_S_FIELD_NUMBER: _ClassVar[int]
    PACK_START_US_FIELD_NUMBER: _ClassVar[int]
    GATEWAYS_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_NAMES_FIELD_NUMBER: _ClassVar[int]
    PACK_CANCELS_FIELD_NUMBER: _ClassVar[int]
    PACK_FAILED_FIELD_NUMBER: _ClassVar[int]
    HOME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    GUESTS_FIELD_NUMBER: _ClassVar[int]
    GUEST_OF_FIELD_NUMBER: _ClassVar[int]
    SPAN_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    RETRY_ON_FIELD_NUMBER: _ClassVar[int]
    RETRY_TEXT_FIELD_NUMBER: _ClassVar[int]
    WASTED_S_FIELD_NUMBER: _ClassVar[int]
    WASTED_CPU_S_FIELD_NUMBER: _ClassVar[int]
    ELASTIC_FIELD_NUMBER: _ClassVar[int]
    GROWTH_ID_FIELD_NUMBER: _ClassVar[int]
    GROWS_FIELD_NUMBER: _ClassVar[int]
    COOPERATE_FIELD_NUMBER: _ClassVar[int]
    BORROW_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    LOANS_FIELD_NUMBER: _ClassVar[int]
    WCKEY_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    MAIL_TYPE_FIELD_NUMBER: _ClassVar[int]
    MAIL_USER_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    NO_SCRIPT_FIELD_NUMBER: _ClassVar[int]
    ATTENDED_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    array_job_id: int
    array_task: int
    array_tasks_left: str
    name: str
    user: str
    uid: int
    account: str
    partition: str
    state: str
    reason: str
    priority: int
    submitted_us: int
    begin_us: int
    started_us: int
    ended_us: int
    time_limit_s: int
    nodes: int
    tasks: int
    cpus: int
    memory_mib: int
    node_names: str
    exit_code: int
    exit_signal: int
    exit_text: str
    attempts: int
    work_dir: str
    output: str
    error: str
    dependencies: str
    requeue: bool
    comment: str
    planned_start_us: int
    reason_text: str
    tasks_running: int
    tasks_done: int
    tasks_failed: int
    qos: str
    reservation: str
    nice: int
    deadline_us: int
    resources: str
    constraint: str
    planned_nodes: str
    paused_us: int
    suspended_us: int
    forecast: Forecast
    first_estimate_s: int
    planned_earliest_us: int
    planned_latest_us: int
    trace: str
    asked: _containers.RepeatedScalarFieldContainer[str]
    parts: _containers.RepeatedCompositeFieldContainer[PartInfo]
    no_kill: bool
    pack_id: int
    pack_index: int
    pack_size: int
    delay_s: int
    pack_start_us: int
    gateways: int
    gateway_names: str
    pack_cancels: bool
    pack_failed: int
    home: str
    owner: str
    guests: _containers.RepeatedCompositeFieldContainer[GuestInfo]
    guest_of: str
    span: bool
    retries: int
    retry_on: str
    retry_text: str
    wasted_s: int
    wasted_cpu_s: int
    elastic: bool
    growth_id: int
    grows: int
    cooperate: str
    borrow: str
    cores: CoresInfo
    loans: _containers.RepeatedCompositeFieldContainer[LoanInfo]
    wckey: str
    command: str
    mail_type: str
    mail_user: str
    details: JobDetails
    request: ResourceRequest
    no_script: bool
    attended: bool
    cron: str
    def __init__(self, job_id: _Optional[int] = ..., array_job_id: _Optional[int] = ..., array_task: _Optional[int] = ..., array_tasks_left: _Optional[str] = ..., name: _Optional[str] = ..., user: _Optional[str] = ..., uid: _Optional[int] = ..., account: _Optional[str] = ..., partition: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., priority: _Optional[int] = ..., submitted_us: _Optional[int] = ..., begin_us: _Optional[int] = ..., started_us: _Optional[int] = ..., ended_us: _Optional[int] = ..., time_limit_s: _Optional[int] = ..., nodes: _Optional[int] = ..., tasks: _Optional[int] = ..., cpus: _Optional[int] = ..., memory_mib: _Optional[int] = ..., node_names: _Optional[str] = ..., exit_code: _Optional[int] = ..., exit_signal: _Optional[int] = ..., exit_text: _Optional[str] = ..., attempts: _Optional[int] = ..., work_dir: _Optional[str] = ..., output: _Optional[str] = ..., error: _Optional[str] = ..., dependencies: _Optional[str] = ..., requeue: _Optional[bool] = ..., comment: _Optional[str] = ..., planned_start_us: _Optional[int] = ..., reason_text: _Optional[str] = ..., tasks_running: _Optional[int] = ..., tasks_done: _Optional[int] = ..., tasks_failed: _Optional[int] = ..., qos: _Optional[str] = ..., reservation: _Optional[str] = ..., nice: _Optional[int] = ..., deadline_us: _Optional[int] = ..., resources: _Optional[str] = ..., constraint: _Optional[str] = ..., planned_nodes: _Optional[str] = ..., paused_us: _Optional[int] = ..., suspended_us: _Optional[int] = ..., forecast: _Optional[_Union[Forecast, _Mapping]] = ..., first_estimate_s: _Optional[int] = ..., planned_earliest_us: _Optional[int] = ..., planned_latest_us: _Optional[int] = ..., trace: _Optional[str] = ..., asked: _Optional[_Iterable[str]] = ..., parts: _Optional[_Iterable[_Union[PartInfo, _Mapping]]] = ..., no_kill: _Optional[bool] = ..., pack_id: _Optional[int] = ..., pack_index: _Optional[int] = ..., pack_size: _Optional[int] = ..., delay_s: _Optional[int] = ..., pack_start_us: _Optional[int] = ..., gateways: _Optional[int] = ..., gateway_names: _Optional[str] = ..., pack_cancels: _Optional[bool] = ..., pack_failed: _Optional[int] = ..., home: _Optional[str] = ..., owner: _Optional[str] = ..., guests: _Optional[_Iterable[_Union[GuestInfo, _Mapping]]] = ..., guest_of: _Optional[str] = ..., span: _Optional[bool] = ..., retries: _Optional[int] = ..., retry_on: _Optional[str] = ..., retry_text: _Optional[str] = ..., wasted_s: _Optional[int] = ..., wasted_cpu_s: _Optional[int] = ..., elastic: _Optional[bool] = ..., growth_id: _Optional[int] = ..., grows: _Optional[int] = ..., cooperate: _Optional[str] = ..., borrow: _Optional[str] = ..., cores: _Optional[_Union[CoresInfo, _Mapping]] = ..., loans: _Optional[_Iterable[_Union[LoanInfo, _Mapping]]] = ..., wckey: _Optional[str] = ..., command: _Optional[str] = ..., mail_type: _Optional[str] = ..., mail_user: _Optional[str] = ..., details: _Optional[_Union[JobDetails, _Mapping]] = ..., request: _Optional[_Union[ResourceRequest, _Mapping]] = ..., no_script: _Optional[bool] = ..., attended: _Optional[bool] = ..., cron: _Optional[str] = ...) -> None: ...

class JobDetails(_message.Message):
    __slots__ = ("gid", "input", "tasks_failed")
    GID_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    TASKS_FAILED_FIELD_NUMBER: _ClassVar[int]
    gid: int
    input: str
    tasks_failed: str
    def __init__(self, gid: _Optional[int] = ..., input: _Optional[str] = ..., tasks_failed: _Optional[str] = ...) -> None: ...

class GuestInfo(_message.Message):
    __slots__ = ("cell", "nodes", "job_id", "node_list")
    CELL_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_LIST_FIELD_NUMBER: _ClassVar[int]
    cell: str
    nodes: int
    job_id: int
    node_list: str
    def __init__(self, cell: _Optional[str] = ..., nodes: _Optional[int] = ..., job_id: _Optional[int] = ..., node_list: _Optional[str] = ...) -> None: ...

class TellGuestRequest(_message.Message):
    __slots__ = ("job_id", "home_job_id", "serial", "wish")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    HOME_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    WISH_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    home_job_id: int
    serial: int
    wish: str
    def __init__(self, job_id: _Optional[int] = ..., home_job_id: _Optional[int] = ..., serial: _Optional[int] = ..., wish: _Optional[str] = ...) -> None: ...

class TellGuestReply(_message.Message):
    __slots__ = ("is_held", "is_ended", "node_list", "text", "is_waiting")
    IS_HELD_FIELD_NUMBER: _ClassVar[int]
    IS_ENDED_FIELD_NUMBER: _ClassVar[int]
    NODE_LIST_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IS_WAITING_FIELD_NUMBER: _ClassVar[int]
    is_held: bool
    is_ended: bool
    node_list: str
    text: str
    is_waiting: bool
    def __init__(self, is_held: _Optional[bool] = ..., is_ended: _Optional[bool] = ..., node_list: _Optional[str] = ..., text: _Optional[str] = ..., is_waiting: _Optional[bool] = ...) -> None: ...

class CoresInfo(_message.Message):
    __slots__ = ("idle", "excluded", "lent", "remaining_s", "reported_us", "lent_core_s", "asked")
    IDLE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    LENT_FIELD_NUMBER: _ClassVar[int]
    REMAINING_S_FIELD_NUMBER: _ClassVar[int]
    REPORTED_US_FIELD_NUMBER: _ClassVar[int]
    LENT_CORE_S_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    idle: int
    excluded: int
    lent: int
    remaining_s: int
    reported_us: int
    lent_core_s: int
    asked: int
    def __init__(self, idle: _Optional[int] = ..., excluded: _Optional[int] = ..., lent: _Optional[int] = ..., remaining_s: _Optional[int] = ..., reported_us: _Optional[int] = ..., lent_core_s: _Optional[int] = ..., asked: _Optional[int] = ...) -> None: ...

class LoanInfo(_message.Message):
    __slots__ = ("owner", "node", "cores", "from_us", "until_us")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    FROM_US_FIELD_NUMBER: _ClassVar[int]
    UNTIL_US_FIELD_NUMBER: _ClassVar[int]
    owner: int
    node: str
    cores: int
    from_us: int
    until_us: int
    def __init__(self, owner: _Optional[int] = ..., node: _Optional[str] = ..., cores: _Optional[int] = ..., from_us: _Optional[int] = ..., until_us: _Optional[int] = ...) -> None: ...

class JobsReply(_message.Message):
    __slots__ = ("jobs", "revision", "now_us")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    NOW_US_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobInfo]
    revision: int
    now_us: int
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobInfo, _Mapping]]] = ..., revision: _Optional[int] = ..., now_us: _Optional[int] = ...) -> None: ...

class WaitJobsRequest(_message.Message):
    __slots__ = ("jobs", "timeout_s")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobRef]
    timeout_s: int
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobRef, _Mapping]]] = ..., timeout_s: _Optional[int] = ...) -> None: ...

class NodesRequest(_message.Message):
    __slots__ = ("names", "states", "partition")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    states: _containers.RepeatedScalarFieldContainer[str]
    partition: str
    def __init__(self, names: _Optional[_Iterable[str]] = ..., states: _Optional[_Iterable[str]] = ..., partition: _Optional[str] = ...) -> None: ...

class NodeInfo(_message.Message):
    __slots__ = ("number", "name", "state", "flags", "reason", "cores", "cores_used", "memory_mib", "memory_used_mib", "partitions", "endpoint", "incarnation", "since_us", "jobs", "boot_id", "features", "resources", "weight", "reservations", "faults", "module", "contained", "reason_since_us", "reason_by")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    CORES_USED_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_MIB_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SINCE_US_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    RESERVATIONS_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    MODULE_FIELD_NUMBER: _ClassVar[int]
    CONTAINED_FIELD_NUMBER: _ClassVar[int]
    REASON_SINCE_US_FIELD_NUMBER: _ClassVar[int]
    REASON_BY_FIELD_NUMBER: _ClassVar[int]
    number: int
    name: str
    state: str
    flags: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    cores: int
    cores_used: int
    memory_mib: int
    memory_used_mib: int
    partitions: _containers.RepeatedScalarFieldContainer[str]
    endpoint: str
    incarnation: int
    since_us: int
    jobs: _containers.RepeatedScalarFieldContainer[int]
    boot_id: str
    features: _containers.RepeatedScalarFieldContainer[str]
    resources: _containers.RepeatedCompositeFieldContainer[ResourceUse]
    weight: int
    reservations: _containers.RepeatedScalarFieldContainer[str]
    faults: _containers.RepeatedScalarFieldContainer[str]
    module: str
    contained: _containers.RepeatedScalarFieldContainer[str]
    reason_since_us: int
    reason_by: str
    def __init__(self, number: _Optional[int] = ..., name: _Optional[str] = ..., state: _Optional[str] = ..., flags: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ..., cores: _Optional[int] = ..., cores_used: _Optional[int] = ..., memory_mib: _Optional[int] = ..., memory_used_mib: _Optional[int] = ..., partitions: _Optional[_Iterable[str]] = ..., endpoint: _Optional[str] = ..., incarnation: _Optional[int] = ..., since_us: _Optional[int] = ..., jobs: _Optional[_Iterable[int]] = ..., boot_id: _Optional[str] = ..., features: _Optional[_Iterable[str]] = ..., resources: _Optional[_Iterable[_Union[ResourceUse, _Mapping]]] = ..., weight: _Optional[int] = ..., reservations: _Optional[_Iterable[str]] = ..., faults: _Optional[_Iterable[str]] = ..., module: _Optional[str] = ..., contained: _Optional[_Iterable[str]] = ..., reason_since_us: _Optional[int] = ..., reason_by: _Optional[str] = ...) -> None: ...

class ResourceUse(_message.Message):
    __slots__ = ("name", "total", "used", "device_type")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    total: int
    used: int
    device_type: str
    def __init__(self, name: _Optional[str] = ..., total: _Optional[int] = ..., used: _Optional[int] = ..., device_type: _Optional[str] = ...) -> None: ...

class PartitionInfo(_message.Message):
    __slots__ = ("name", "is_default", "up", "time_limit_max_s", "time_limit_default_s", "nodes", "role", "state")
    NAME_FIELD_NUMBER: _ClassVar[int]
    IS_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_MAX_S_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_DEFAULT_S_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    name: str
    is_default: bool
    up: bool
    time_limit_max_s: int
    time_limit_default_s: int
    nodes: int
    role: str
    state: str
    def __init__(self, name: _Optional[str] = ..., is_default: _Optional[bool] = ..., up: _Optional[bool] = ..., time_limit_max_s: _Optional[int] = ..., time_limit_default_s: _Optional[int] = ..., nodes: _Optional[int] = ..., role: _Optional[str] = ..., state: _Optional[str] = ...) -> None: ...

class ModuleInfo(_message.Message):
    __slots__ = ("name", "kind", "reaches")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    REACHES_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    reaches: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., reaches: _Optional[_Iterable[str]] = ...) -> None: ...

class NodesReply(_message.Message):
    __slots__ = ("nodes", "partitions", "revision", "now_us", "modules")
    NODES_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    NOW_US_FIELD_NUMBER: _ClassVar[int]
    MODULES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeInfo]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionInfo]
    revision: int
    now_us: int
    modules: _containers.RepeatedCompositeFieldContainer[ModuleInfo]
    def __init__(self, nodes: _Optional[_Iterable[_Union[NodeInfo, _Mapping]]] = ..., partitions: _Optional[_Iterable[_Union[PartitionInfo, _Mapping]]] = ..., revision: _Optional[int] = ..., now_us: _Optional[int] = ..., modules: _Optional[_Iterable[_Union[ModuleInfo, _Mapping]]] = ...) -> None: ...

class SatellitesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SatelliteInfo(_message.Message):
    __slots__ = ("name", "endpoint", "state", "since_us", "broadcasts", "tasks_running", "nodes_given", "failures", "rss_bytes", "sockets", "lag_us", "suspect", "reason", "heard_us")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SINCE_US_FIELD_NUMBER: _ClassVar[int]
    BROADCASTS_FIELD_NUMBER: _ClassVar[int]
    TASKS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    NODES_GIVEN_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    SOCKETS_FIELD_NUMBER: _ClassVar[int]
    LAG_US_FIELD_NUMBER: _ClassVar[int]
    SUSPECT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    HEARD_US_FIELD_NUMBER: _ClassVar[int]
    name: str
    endpoint: str
    state: str
    since_us: int
    broadcasts: int
    tasks_running: int
    nodes_given: int
    failures: int
    rss_bytes: int
    sockets: int
    lag_us: int
    suspect: bool
    reason: str
    heard_us: int
    def __init__(self, name: _Optional[str] = ..., endpoint: _Optional[str] = ..., state: _Optional[str] = ..., since_us: _Optional[int] = ..., broadcasts: _Optional[int] = ..., tasks_running: _Optional[int] = ..., nodes_given: _Optional[int] = ..., failures: _Optional[int] = ..., rss_bytes: _Optional[int] = ..., sockets: _Optional[int] = ..., lag_us: _Optional[int] = ..., suspect: _Optional[bool] = ..., reason: _Optional[str] = ..., heard_us: _Optional[int] = ...) -> None: ...

class UpdateSatellitesRequest(_message.Message):
    __slots__ = ("names", "action", "reason")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    action: str
    reason: str
    def __init__(self, names: _Optional[_Iterable[str]] = ..., action: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class BroadcastsRequest(_message.Message):
    __slots__ = ("id", "limit", "kind", "with_tree")
    ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    WITH_TREE_FIELD_NUMBER: _ClassVar[int]
    id: int
    limit: int
    kind: str
    with_tree: bool
    def __init__(self, id: _Optional[int] = ..., limit: _Optional[int] = ..., kind: _Optional[str] = ..., with_tree: _Optional[bool] = ...) -> None: ...

class BroadcastSpan(_message.Message):
    __slots__ = ("parent", "child", "hop", "nodes", "acked_us", "done_us", "how")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    CHILD_FIELD_NUMBER: _ClassVar[int]
    HOP_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    ACKED_US_FIELD_NUMBER: _ClassVar[int]
    DONE_US_FIELD_NUMBER: _ClassVar[int]
    HOW_FIELD_NUMBER: _ClassVar[int]
    parent: str
    child: str
    hop: int
    nodes: int
    acked_us: int
    done_us: int
    how: str
    def __init__(self, parent: _Optional[str] = ..., child: _Optional[str] = ..., hop: _Optional[int] = ..., nodes: _Optional[int] = ..., acked_us: _Optional[int] = ..., done_us: _Optional[int] = ..., how: _Optional[str] = ...) -> None: ...

class BroadcastLevel(_message.Message):
    __slots__ = ("hop", "sends", "acked_mean_us", "acked_max_us", "done_max_us", "adopted")
    HOP_FIELD_NUMBER: _ClassVar[int]
    SENDS_FIELD_NUMBER: _ClassVar[int]
    ACKED_MEAN_US_FIELD_NUMBER: _ClassVar[int]
    ACKED_MAX_US_FIELD_NUMBER: _ClassVar[int]
    DONE_MAX_US_FIELD_NUMBER: _ClassVar[int]
    ADOPTED_FIELD_NUMBER: _ClassVar[int]
    hop: int
    sends: int
    acked_mean_us: int
    acked_max_us: int
    done_max_us: int
    adopted: int
    def __init__(self, hop: _Optional[int] = ..., sends: _Optional[int] = ..., acked_mean_us: _Optional[int] = ..., acked_max_us: _Optional[int] = ..., done_max_us: _Optional[int] = ..., adopted: _Optional[int] = ...) -> None: ...

class BroadcastInfo(_message.Message):
    __slots__ = ("id", "kind", "started_us", "took_us", "nodes", "ok", "failed", "unreached", "predicted", "width", "grouping", "satellites", "reallocations", "takeovers", "levels", "spans", "spans_omitted", "unreached_nodes")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STARTED_US_FIELD_NUMBER: _ClassVar[int]
    TOOK_US_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    UNREACHED_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    GROUPING_FIELD_NUMBER: _ClassVar[int]
    SATELLITES_FIELD_NUMBER: _ClassVar[int]
    REALLOCATIONS_FIELD_NUMBER: _ClassVar[int]
    TAKEOVERS_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    SPANS_OMITTED_FIELD_NUMBER: _ClassVar[int]
    UNREACHED_NODES_FIELD_NUMBER: _ClassVar[int]
    id: int
    kind: str
    started_us: int
    took_us: int
    nodes: int
    ok: int
    failed: int
    unreached: int
    predicted: int
    width: int
    grouping: str
    satellites: _containers.RepeatedScalarFieldContainer[str]
    reallocations: int
    takeovers: int
    levels: _containers.RepeatedCompositeFieldContainer[BroadcastLevel]
    spans: _containers.RepeatedCompositeFieldContainer[BroadcastSpan]
    spans_omitted: int
    unreached_nodes: str
    def __init__(self, id: _Optional[int] = ..., kind: _Optional[str] = ..., started_us: _Optional[int] = ..., took_us: _Optional[int] = ..., nodes: _Optional[int] = ..., ok: _Optional[int] = ..., failed: _Optional[int] = ..., unreached: _Optional[int] = ..., predicted: _Optional[int] = ..., width: _Optional[int] = ..., grouping: _Optional[str] = ..., satellites: _Optional[_Iterable[str]] = ..., reallocations: _Optional[int] = ..., takeovers: _Optional[int] = ..., levels: _Optional[_Iterable[_Union[BroadcastLevel, _Mapping]]] = ..., spans: _Optional[_Iterable[_Union[BroadcastSpan, _Mapping]]] = ..., spans_omitted: _Optional[int] = ..., unreached_nodes: _Optional[str] = ...) -> None: ...

class BroadcastsReply(_message.Message):
    __slots__ = ("broadcasts", "now_us")
    BROADCASTS_FIELD_NUMBER: _ClassVar[int]
    NOW_US_FIELD_NUMBER: _ClassVar[int]
    broadcasts: _containers.RepeatedCompositeFieldContainer[BroadcastInfo]
    now_us: int
    def __init__(self, broadcasts: _Optional[_Iterable[_Union[BroadcastInfo, _Mapping]]] = ..., now_us: _Optional[int] = ...) -> None: ...

class TreeReportRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Share(_message.Message):
    __slots__ = ("value", "low", "high", "of")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    OF_FIELD_NUMBER: _ClassVar[int]
    value: float
    low: float
    high: float
    of: int
    def __init__(self, value: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ..., of: _Optional[int] = ...) -> None: ...

class PredictorReport(_message.Message):
    __slots__ = ("name", "state", "predicted_now", "precision", "recall", "leaf_share", "random_leaf_share", "lift", "recall_new")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_NOW_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    RECALL_FIELD_NUMBER: _ClassVar[int]
    LEAF_SHARE_FIELD_NUMBER: _ClassVar[int]
    RANDOM_LEAF_SHARE_FIELD_NUMBER: _ClassVar[int]
    LIFT_FIELD_NUMBER: _ClassVar[int]
    RECALL_NEW_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    predicted_now: int
    precision: Share
    recall: Share
    leaf_share: Share
    random_leaf_share: float
    lift: float
    recall_new: Share
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ..., predicted_now: _Optional[int] = ..., precision: _Optional[_Union[Share, _Mapping]] = ..., recall: _Optional[_Union[Share, _Mapping]] = ..., leaf_share: _Optional[_Union[Share, _Mapping]] = ..., random_leaf_share: _Optional[float] = ..., lift: _Optional[float] = ..., recall_new: _Optional[_Union[Share, _Mapping]] = ...) -> None: ...

class TreeReportReply(_message.Message):
    __slots__ = ("predictors", "broadcasts", "failed_nodes", "since_us", "now_us", "grouping", "width", "widths")
    PREDICTORS_FIELD_NUMBER: _ClassVar[int]
    BROADCASTS_FIELD_NUMBER: _ClassVar[int]
    FAILED_NODES_FIELD_NUMBER: _ClassVar[int]
    SINCE_US_FIELD_NUMBER: _ClassVar[int]
    NOW_US_FIELD_NUMBER: _ClassVar[int]
    GROUPING_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    WIDTHS_FIELD_NUMBER: _ClassVar[int]
    predictors: _containers.RepeatedCompositeFieldContainer[PredictorReport]
    broadcasts: int
    failed_nodes: int
    since_us: int
    now_us: int
    grouping: str
    width: int
    widths: _containers.RepeatedCompositeFieldContainer[WidthScore]
    def __init__(self, predictors: _Optional[_Iterable[_Union[PredictorReport, _Mapping]]] = ..., broadcasts: _Optional[int] = ..., failed_nodes: _Optional[int] = ..., since_us: _Optional[int] = ..., now_us: _Optional[int] = ..., grouping: _Optional[str] = ..., width: _Optional[int] = ..., widths: _Optional[_Iterable[_Union[WidthScore, _Mapping]]] = ...) -> None: ...

class WidthScore(_message.Message):
    __slots__ = ("nodes_up_to", "width", "median_us", "samples", "chosen")
    NODES_UP_TO_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_US_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    nodes_up_to: int
    width: int
    median_us: int
    samples: int
    chosen: bool
    def __init__(self, nodes_up_to: _Optional[int] = ..., width: _Optional[int] = ..., median_us: _Optional[int] = ..., samples: _Optional[int] = ..., chosen: _Optional[bool] = ...) -> None: ...

class SatellitesReply(_message.Message):
    __slots__ = ("satellites", "now_us")
    SATELLITES_FIELD_NUMBER: _ClassVar[int]
    NOW_US_FIELD_NUMBER: _ClassVar[int]
    satellites: _containers.RepeatedCompositeFieldContainer[SatelliteInfo]
    now_us: int
    def __init__(self, satellites: _Optional[_Iterable[_Union[SatelliteInfo, _Mapping]]] = ..., now_us: _Optional[int] = ...) -> None: ...

class AccountingRequest(_message.Message):
    __slots__ = ("jobs", "user", "states", "since_us", "until_us", "limit", "page", "partition", "name")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    SINCE_US_FIELD_NUMBER: _ClassVar[int]
    UNTIL_US_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobRef]
    user: str
    states: _containers.RepeatedScalarFieldContainer[str]
    since_us: int
    until_us: int
    limit: int
    page: int
    partition: str
    name: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobRef, _Mapping]]] = ..., user: _Optional[str] = ..., states: _Optional[_Iterable[str]] = ..., since_us: _Optional[int] = ..., until_us: _Optional[int] = ..., limit: _Optional[int] = ..., page: _Optional[int] = ..., partition: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class AttemptInfo(_message.Message):
    __slots__ = ("job_id", "array_job_id", "array_task", "attempt", "name", "user", "account", "partition", "state", "submitted_us", "started_us", "ended_us", "node_names", "nodes", "cpus", "exit_code", "exit_signal", "user_cpu_us", "system_cpu_us", "max_rss_kib", "exit_text", "paused_us", "time_limit_s", "first_estimate_s", "forecast", "trace", "parts", "pack_id", "pack_index", "segments", "lent_core_s", "borrowed_core_s")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ARRAY_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ARRAY_TASK_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_US_FIELD_NUMBER: _ClassVar[int]
    STARTED_US_FIELD_NUMBER: _ClassVar[int]
    ENDED_US_FIELD_NUMBER: _ClassVar[int]
    NODE_NAMES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    EXIT_SIGNAL_FIELD_NUMBER: _ClassVar[int]
    USER_CPU_US_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_CPU_US_FIELD_NUMBER: _ClassVar[int]
    MAX_RSS_KIB_FIELD_NUMBER: _ClassVar[int]
    EXIT_TEXT_FIELD_NUMBER: _ClassVar[int]
    PAUSED_US_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_S_FIELD_NUMBER: _ClassVar[int]
    FIRST_ESTIMATE_S_FIELD_NUMBER: _ClassVar[int]
    FORECAST_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    PACK_ID_FIELD_NUMBER: _ClassVar[int]
    PACK_INDEX_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    LENT_CORE_S_FIELD_NUMBER: _ClassVar[int]
    BORROWED_CORE_S_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    array_job_id: int
    array_task: int
    attempt: int
    name: str
    user: str
    account: str
    partition: str
    state: str
    submitted_us: int
    started_us: int
    ended_us: int
    node_names: str
    nodes: int
    cpus: int
    exit_code: int
    exit_signal: int
    user_cpu_us: int
    system_cpu_us: int
    max_rss_kib: int
    exit_text: str
    paused_us: int
    time_limit_s: int
    first_estimate_s: int
    forecast: Forecast
    trace: str
    parts: _containers.RepeatedCompositeFieldContainer[PartInfo]
    pack_id: int
    pack_index: int
    segments: _containers.RepeatedCompositeFieldContainer[SegmentInfo]
    lent_core_s: int
    borrowed_core_s: int
    def __init__(self, job_id: _Optional[int] = ..., array_job_id: _Optional[int] = ..., array_task: _Optional[int] = ..., attempt: _Optional[int] = ..., name: _Optional[str] = ..., user: _Optional[str] = ..., account: _Optional[str] = ..., partition: _Optional[str] = ..., state: _Optional[str] = ..., submitted_us: _Optional[int] = ..., started_us: _Optional[int] = ..., ended_us: _Optional[int] = ..., node_names: _Optional[str] = ..., nodes: _Optional[int] = ..., cpus: _Optional[int] = ..., exit_code: _Optional[int] = ..., exit_signal: _Optional[int] = ..., user_cpu_us: _Optional[int] = ..., system_cpu_us: _Optional[int] = ..., max_rss_kib: _Optional[int] = ..., exit_text: _Optional[str] = ..., paused_us: _Optional[int] = ..., time_limit_s: _Optional[int] = ..., first_estimate_s: _Optional[int] = ..., forecast: _Optional[_Union[Forecast, _Mapping]] = ..., trace: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[PartInfo, _Mapping]]] = ..., pack_id: _Optional[int] = ..., pack_index: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[SegmentInfo, _Mapping]]] = ..., lent_core_s: _Optional[int] = ..., borrowed_core_s: _Optional[int] = ...) -> None: ...

class SegmentInfo(_message.Message):
    __slots__ = ("from_us", "until_us", "node_names", "nodes", "cpus")
    FROM_US_FIELD_NUMBER: _ClassVar[int]
    UNTIL_US_FIELD_NUMBER: _ClassVar[int]
    NODE_NAMES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    from_us: int
    until_us: int
    node_names: str
    nodes: int
    cpus: int
    def __init__(self, from_us: _Optional[int] = ..., until_us: _Optional[int] = ..., node_names: _Optional[str] = ..., nodes: _Optional[int] = ..., cpus: _Optional[int] = ...) -> None: ...

class AccountingReply(_message.Message):
    __slots__ = ("attempts", "next_page")
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_FIELD_NUMBER: _ClassVar[int]
    attempts: _containers.RepeatedCompositeFieldContainer[AttemptInfo]
    next_page: int
    def __init__(self, attempts: _Optional[_Iterable[_Union[AttemptInfo, _Mapping]]] = ..., next_page: _Optional[int] = ...) -> None: ...

class ConfigRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ConfigReply(_message.Message):
    __slots__ = ("revision", "json")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    revision: int
    json: str
    def __init__(self, revision: _Optional[int] = ..., json: _Optional[str] = ...) -> None: ...

class StepProgram(_message.Message):
    __slots__ = ("argv", "tasks", "nodes", "cpus_per_task")
    ARGV_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    CPUS_PER_TASK_FIELD_NUMBER: _ClassVar[int]
    argv: _containers.RepeatedScalarFieldContainer[str]
    tasks: int
    nodes: int
    cpus_per_task: int
    def __init__(self, argv: _Optional[_Iterable[str]] = ..., tasks: _Optional[int] = ..., nodes: _Optional[int] = ..., cpus_per_task: _Optional[int] = ...) -> None: ...

class CreateStepRequest(_message.Message):
    __slots__ = ("job_id", "tasks", "nodes", "argv", "environment", "work_dir", "endpoint", "cookie", "cpus_per_task", "name", "components", "programs", "cell", "joint", "tasks_open", "nodes_open", "input", "mpi", "node_names", "claim", "immediate", "time_limit_s", "files")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    WORK_DIR_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    COOKIE_FIELD_NUMBER: _ClassVar[int]
    CPUS_PER_TASK_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    COMPONENTS_FIELD_NUMBER: _ClassVar[int]
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    CELL_FIELD_NUMBER: _ClassVar[int]
    JOINT_FIELD_NUMBER: _ClassVar[int]
    TASKS_OPEN_FIELD_NUMBER: _ClassVar[int]
    NODES_OPEN_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    MPI_FIELD_NUMBER: _ClassVar[int]
    NODE_NAMES_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    IMMEDIATE_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_S_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    tasks: int
    nodes: int
    argv: _containers.RepeatedScalarFieldContainer[str]
    environment: bytes
    work_dir: str
    endpoint: str
    cookie: bytes
    cpus_per_task: int
    name: str
    components: _containers.RepeatedScalarFieldContainer[int]
    programs: _containers.RepeatedCompositeFieldContainer[StepProgram]
    cell: str
    joint: JointStep
    tasks_open: bool
    nodes_open: bool
    input: StepInput
    mpi: str
    node_names: _containers.RepeatedScalarFieldContainer[str]
    claim: StepClaim
    immediate: bool
    time_limit_s: int
    files: StepFiles
    def __init__(self, job_id: _Optional[int] = ..., tasks: _Optional[int] = ..., nodes: _Optional[int] = ..., argv: _Optional[_Iterable[str]] = ..., environment: _Optional[bytes] = ..., work_dir: _Optional[str] = ..., endpoint: _Optional[str] = ..., cookie: _Optional[bytes] = ..., cpus_per_task: _Optional[int] = ..., name: _Optional[str] = ..., components: _Optional[_Iterable[int]] = ..., programs: _Optional[_Iterable[_Union[StepProgram, _Mapping]]] = ..., cell: _Optional[str] = ..., joint: _Optional[_Union[JointStep, _Mapping]] = ..., tasks_open: _Optional[bool] = ..., nodes_open: _Optional[bool] = ..., input: _Optional[_Union[StepInput, _Mapping]] = ..., mpi: _Optional[str] = ..., node_names: _Optional[_Iterable[str]] = ..., claim: _Optional[_Union[StepClaim, _Mapping]] = ..., immediate: _Optional[bool] = ..., time_limit_s: _Optional[int] = ..., files: _Optional[_Union[StepFiles, _Mapping]] = ...) -> None: ...

class StepFiles(_message.Message):
    __slots__ = ("output", "error")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    output: str
    error: str
    def __init__(self, output: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class StepClaim(_message.Message):
    __slots__ = ("whole", "memory_mib", "memory_per_cpu_mib", "per_node", "per_task")
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PER_CPU_MIB_FIELD_NUMBER: _ClassVar[int]
    PER_NODE_FIELD_NUMBER: _ClassVar[int]
    PER_TASK_FIELD_NUMBER: _ClassVar[int]
    whole: bool
    memory_mib: int
    memory_per_cpu_mib: int
    per_node: _containers.RepeatedCompositeFieldContainer[ResourceAmount]
    per_task: _containers.RepeatedCompositeFieldContainer[ResourceAmount]
    def __init__(self, whole: _Optional[bool] = ..., memory_mib: _Optional[int] = ..., memory_per_cpu_mib: _Optional[int] = ..., per_node: _Optional[_Iterable[_Union[ResourceAmount, _Mapping]]] = ..., per_task: _Optional[_Iterable[_Union[ResourceAmount, _Mapping]]] = ...) -> None: ...

class StepInput(_message.Message):
    __slots__ = ("rank", "path", "terminal")
    RANK_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    rank: int
    path: str
    terminal: TerminalSize
    def __init__(self, rank: _Optional[int] = ..., path: _Optional[str] = ..., terminal: _Optional[_Union[TerminalSize, _Mapping]] = ...) -> None: ...

class TerminalSize(_message.Message):
    __slots__ = ("rows", "columns")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    columns: int
    def __init__(self, rows: _Optional[int] = ..., columns: _Optional[int] = ...) -> None: ...

class JointStep(_message.Message):
    __slots__ = ("home_job_id", "rank_first", "ranks", "node_first", "nodes", "node_list", "tasks_per_node")
    HOME_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RANK_FIRST_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    NODE_FIRST_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    NODE_LIST_FIELD_NUMBER: _ClassVar[int]
    TASKS_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    home_job_id: int
    rank_first: int
    ranks: int
    node_first: int
    nodes: int
    node_list: str
    tasks_per_node: str
    def __init__(self, home_job_id: _Optional[int] = ..., rank_first: _Optional[int] = ..., ranks: _Optional[int] = ..., node_first: _Optional[int] = ..., nodes: _Optional[int] = ..., node_list: _Optional[str] = ..., tasks_per_node: _Optional[str] = ...) -> None: ...

class StepNode(_message.Message):
    __slots__ = ("name", "tasks")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    name: str
    tasks: int
    def __init__(self, name: _Optional[str] = ..., tasks: _Optional[int] = ...) -> None: ...

class StepPart(_message.Message):
    __slots__ = ("component", "step", "rank_first", "layout")
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    RANK_FIRST_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    component: int
    step: int
    rank_first: int
    layout: _containers.RepeatedCompositeFieldContainer[StepNode]
    def __init__(self, component: _Optional[int] = ..., step: _Optional[int] = ..., rank_first: _Optional[int] = ..., layout: _Optional[_Iterable[_Union[StepNode, _Mapping]]] = ...) -> None: ...

class CreateStepReply(_message.Message):
    __slots__ = ("job_id", "attempt", "step", "layout", "parts", "waits")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    attempt: int
    step: int
    layout: _containers.RepeatedCompositeFieldContainer[StepNode]
    parts: _containers.RepeatedCompositeFieldContainer[StepPart]
    waits: bool
    def __init__(self, job_id: _Optional[int] = ..., attempt: _Optional[int] = ..., step: _Optional[int] = ..., layout: _Optional[_Iterable[_Union[StepNode, _Mapping]]] = ..., parts: _Optional[_Iterable[_Union[StepPart, _Mapping]]] = ..., waits: _Optional[bool] = ...) -> None: ...

class WaitStepRequest(_message.Message):
    __slots__ = ("job_id", "step", "timeout_s", "cell", "home_job_id", "turn", "over", "steps")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    CELL_FIELD_NUMBER: _ClassVar[int]
    HOME_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    step: int
    timeout_s: int
    cell: str
    home_job_id: int
    turn: bool
    over: bool
    steps: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, job_id: _Optional[int] = ..., step: _Optional[int] = ..., timeout_s: _Optional[int] = ..., cell: _Optional[str] = ..., home_job_id: _Optional[int] = ..., turn: _Optional[bool] = ..., over: _Optional[bool] = ..., steps: _Optional[_Iterable[int]] = ...) -> None: ...

class StepReply(_message.Message):
    __slots__ = ("state", "failed", "step", "left", "exit_code", "waited")
    STATE_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    WAITED_FIELD_NUMBER: _ClassVar[int]
    state: str
    failed: _containers.RepeatedCompositeFieldContainer[Problem]
    step: CreateStepReply
    left: int
    exit_code: int
    waited: int
    def __init__(self, state: _Optional[str] = ..., failed: _Optional[_Iterable[_Union[Problem, _Mapping]]] = ..., step: _Optional[_Union[CreateStepReply, _Mapping]] = ..., left: _Optional[int] = ..., exit_code: _Optional[int] = ..., waited: _Optional[int] = ...) -> None: ...

class FinishStepRequest(_message.Message):
    __slots__ = ("job_id", "step", "exit_code", "signal", "cell", "home_job_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    CELL_FIELD_NUMBER: _ClassVar[int]
    HOME_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    step: int
    exit_code: int
    signal: int
    cell: str
    home_job_id: int
    def __init__(self, job_id: _Optional[int] = ..., step: _Optional[int] = ..., exit_code: _Optional[int] = ..., signal: _Optional[int] = ..., cell: _Optional[str] = ..., home_job_id: _Optional[int] = ...) -> None: ...

class AttachStepRequest(_message.Message):
    __slots__ = ("job_id", "step")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    step: int
    def __init__(self, job_id: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class AttachStepReply(_message.Message):
    __slots__ = ("endpoint", "secret", "layout")
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    endpoint: str
    secret: bytes
    layout: _containers.RepeatedCompositeFieldContainer[StepNode]
    def __init__(self, endpoint: _Optional[str] = ..., secret: _Optional[bytes] = ..., layout: _Optional[_Iterable[_Union[StepNode, _Mapping]]] = ...) -> None: ...

class AttendJobRequest(_message.Message):
    __slots__ = ("job_id", "state", "timeout_s")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    state: str
    timeout_s: int
    def __init__(self, job_id: _Optional[int] = ..., state: _Optional[str] = ..., timeout_s: _Optional[int] = ...) -> None: ...

class AttendJobReply(_message.Message):
    __slots__ = ("state", "text", "node_list", "environment")
    STATE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    NODE_LIST_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    state: str
    text: str
    node_list: str
    environment: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, state: _Optional[str] = ..., text: _Optional[str] = ..., node_list: _Optional[str] = ..., environment: _Optional[_Iterable[str]] = ...) -> None: ...

class ReleaseJobRequest(_message.Message):
    __slots__ = ("job_id", "exit_code")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    exit_code: int
    def __init__(self, job_id: _Optional[int] = ..., exit_code: _Optional[int] = ...) -> None: ...

class FinishPartRequest(_message.Message):
    __slots__ = ("job", "kill", "dry_run")
    JOB_FIELD_NUMBER: _ClassVar[int]
    KILL_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    job: JobRef
    kill: bool
    dry_run: bool
    def __init__(self, job: _Optional[_Union[JobRef, _Mapping]] = ..., kill: _Optional[bool] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class Amounts(_message.Message):
    __slots__ = ("nodes", "node_names", "cpus", "memory_mib")
    NODES_FIELD_NUMBER: _ClassVar[int]
    NODE_NAMES_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    nodes: int
    node_names: str
    cpus: int
    memory_mib: int
    def __init__(self, nodes: _Optional[int] = ..., node_names: _Optional[str] = ..., cpus: _Optional[int] = ..., memory_mib: _Optional[int] = ...) -> None: ...

class FinishPartReply(_message.Message):
    __slots__ = ("job_id", "part", "before", "after", "leaving", "busy", "steps")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    part: int
    before: Amounts
    after: Amounts
    leaving: str
    busy: str
    steps: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, job_id: _Optional[int] = ..., part: _Optional[int] = ..., before: _Optional[_Union[Amounts, _Mapping]] = ..., after: _Optional[_Union[Amounts, _Mapping]] = ..., leaving: _Optional[str] = ..., busy: _Optional[str] = ..., steps: _Optional[_Iterable[int]] = ...) -> None: ...

class ControllersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ControllerInfo(_message.Message):
    __slots__ = ("name", "role", "endpoint", "epoch", "since_us", "build", "configuration")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SINCE_US_FIELD_NUMBER: _ClassVar[int]
    BUILD_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    role: str
    endpoint: str
    epoch: int
    since_us: int
    build: str
    configuration: str
    def __init__(self, name: _Optional[str] = ..., role: _Optional[str] = ..., endpoint: _Optional[str] = ..., epoch: _Optional[int] = ..., since_us: _Optional[int] = ..., build: _Optional[str] = ..., configuration: _Optional[str] = ...) -> None: ...

class ControllersReply(_message.Message):
    __slots__ = ("controllers", "now_us")
    CONTROLLERS_FIELD_NUMBER: _ClassVar[int]
    NOW_US_FIELD_NUMBER: _ClassVar[int]
    controllers: _containers.RepeatedCompositeFieldContainer[ControllerInfo]
    now_us: int
    def __init__(self, controllers: _Optional[_Iterable[_Union[ControllerInfo, _Mapping]]] = ..., now_us: _Optional[int] = ...) -> None: ...

class TakeoverRequest(_message.Message):
    __slots__ = ("to",)
    TO_FIELD_NUMBER: _ClassVar[int]
    to: str
    def __init__(self, to: _Optional[str] = ...) -> None: ...

class TakeoverReply(_message.Message):
    __slots__ = ("to", "epoch")
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    to: str
    epoch: int
    def __init__(self, to: _Optional[str] = ..., epoch: _Optional[int] = ..., **kwargs) -> None: ...

class ExportLogRequest(_message.Message):
    __slots__ = ("from_revision", "since_us", "limit")
    FROM_REVISION_FIELD_NUMBER: _ClassVar[int]
    SINCE_US_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    from_revision: int
    since_us: int
    limit: int
    def __init__(self, from_revision: _Optional[int] = ..., since_us: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class LoggedFact(_message.Message):
    __slots__ = ("revision", "at_us", "kind", "version", "blob", "epoch")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    AT_US_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    revision: int
    at_us: int
    kind: str
    version: int
    blob: bytes
    epoch: int
    def __init__(self, revision: _Optional[int] = ..., at_us: _Optional[int] = ..., kind: _Optional[str] = ..., version: _Optional[int] = ..., blob: _Optional[bytes] = ..., epoch: _Optional[int] = ...) -> None: ...

class ExportLogReply(_message.Message):
    __slots__ = ("facts", "next_revision", "head_revision", "cluster", "owner", "base")
    FACTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_REVISION_FIELD_NUMBER: _ClassVar[int]
    HEAD_REVISION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    facts: _containers.RepeatedCompositeFieldContainer[LoggedFact]
    next_revision: int
    head_revision: int
    cluster: str
    owner: str
    base: bytes
    def __init__(self, facts: _Optional[_Iterable[_Union[LoggedFact, _Mapping]]] = ..., next_revision: _Optional[int] = ..., head_revision: _Optional[int] = ..., cluster: _Optional[str] = ..., owner: _Optional[str] = ..., base: _Optional[bytes] = ...) -> None: ...

class DoctorRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Finding(_message.Message):
    __slots__ = ("check", "severity", "what", "text", "advice")
    CHECK_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ADVICE_FIELD_NUMBER: _ClassVar[int]
    check: str
    severity: str
    what: str
    text: str
    advice: str
    def __init__(self, check: _Optional[str] = ..., severity: _Optional[str] = ..., what: _Optional[str] = ..., text: _Optional[str] = ..., advice: _Optional[str] = ...) -> None: ...

class DoctorReply(_message.Message):
    __slots__ = ("findings", "checks", "revision", "now_us")
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    NOW_US_FIELD_NUMBER: _ClassVar[int]
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    checks: _containers.RepeatedScalarFieldContainer[str]
    revision: int
    now_us: int
    def __init__(self, findings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ..., checks: _Optional[_Iterable[str]] = ..., revision: _Optional[int] = ..., now_us: _Optional[int] = ...) -> None: ...

class PoliciesRequest(_message.Message):
    __slots__ = ("kind", "names")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    kind: str
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, kind: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ...) -> None: ...

class PolicyInfo(_message.Message):
    __slots__ = ("kind", "name", "json")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    json: str
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., json: _Optional[str] = ...) -> None: ...

class PoliciesReply(_message.Message):
    __slots__ = ("policies", "revision", "now_us")
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    NOW_US_FIELD_NUMBER: _ClassVar[int]
    policies: _containers.RepeatedCompositeFieldContainer[PolicyInfo]
    revision: int
    now_us: int
    def __init__(self, policies: _Optional[_Iterable[_Union[PolicyInfo, _Mapping]]] = ..., revision: _Optional[int] = ..., now_us: _Optional[int] = ...) -> None: ...

class Setting(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class PolicyChange(_message.Message):
    __slots__ = ("action", "kind", "name", "settings")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    action: str
    kind: str
    name: str
    settings: _containers.RepeatedCompositeFieldContainer[Setting]
    def __init__(self, action: _Optional[str] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ..., settings: _Optional[_Iterable[_Union[Setting, _Mapping]]] = ...) -> None: ...

class ChangePoliciesRequest(_message.Message):
    __slots__ = ("changes",)
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[PolicyChange]
    def __init__(self, changes: _Optional[_Iterable[_Union[PolicyChange, _Mapping]]] = ...) -> None: ...

class Reason(_message.Message):
    __slots__ = ("kind", "text", "nodes_failing", "nodes_of", "until_us", "holders", "part")
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    NODES_FAILING_FIELD_NUMBER: _ClassVar[int]
    NODES_OF_FIELD_NUMBER: _ClassVar[int]
    UNTIL_US_FIELD_NUMBER: _ClassVar[int]
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    kind: str
    text: str
    nodes_failing: int
    nodes_of: int
    until_us: int
    holders: _containers.RepeatedCompositeFieldContainer[Holder]
    part: int
    def __init__(self, kind: _Optional[str] = ..., text: _Optional[str] = ..., nodes_failing: _Optional[int] = ..., nodes_of: _Optional[int] = ..., until_us: _Optional[int] = ..., holders: _Optional[_Iterable[_Union[Holder, _Mapping]]] = ..., part: _Optional[int] = ...) -> None: ...

class Holder(_message.Message):
    __slots__ = ("job_id", "what", "nodes", "until_us")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    UNTIL_US_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    what: str
    nodes: int
    until_us: int
    def __init__(self, job_id: _Optional[int] = ..., what: _Optional[str] = ..., nodes: _Optional[int] = ..., until_us: _Optional[int] = ...) -> None: ...

class Alternative(_message.Message):
    __slots__ = ("text", "option", "start_us", "nodes", "update", "part", "job_id")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    OPTION_FIELD_NUMBER: _ClassVar[int]
    START_US_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    text: str
    option: str
    start_us: int
    nodes: int
    update: str
    part: int
    job_id: int
    def __init__(self, text: _Optional[str] = ..., option: _Optional[str] = ..., start_us: _Optional[int] = ..., nodes: _Optional[int] = ..., update: _Optional[str] = ..., part: _Optional[int] = ..., job_id: _Optional[int] = ...) -> None: ...

class WhyRequest(_message.Message):
    __slots__ = ("job", "no_alternatives")
    JOB_FIELD_NUMBER: _ClassVar[int]
    NO_ALTERNATIVES_FIELD_NUMBER: _ClassVar[int]
    job: JobRef
    no_alternatives: bool
    def __init__(self, job: _Optional[_Union[JobRef, _Mapping]] = ..., no_alternatives: _Optional[bool] = ...) -> None: ...

class WhyReply(_message.Message):
    __slots__ = ("job", "reasons", "planned_start_us", "planned_nodes", "alternatives", "ahead", "priority", "factors", "revision", "now_us", "start_earliest_us", "start_latest_us")
    JOB_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    PLANNED_START_US_FIELD_NUMBER: _ClassVar[int]
    PLANNED_NODES_FIELD_NUMBER: _ClassVar[int]
    ALTERNATIVES_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    FACTORS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    NOW_US_FIELD_NUMBER: _ClassVar[int]
    START_EARLIEST_US_FIELD_NUMBER: _ClassVar[int]
    START_LATEST_US_FIELD_NUMBER: _ClassVar[int]
    job: JobInfo
    reasons: _containers.RepeatedCompositeFieldContainer[Reason]
    planned_start_us: int
    planned_nodes: str
    alternatives: _containers.RepeatedCompositeFieldContainer[Alternative]
    ahead: int
    priority: int
    factors: str
    revision: int
    now_us: int
    start_earliest_us: int
    start_latest_us: int
    def __init__(self, job: _Optional[_Union[JobInfo, _Mapping]] = ..., reasons: _Optional[_Iterable[_Union[Reason, _Mapping]]] = ..., planned_start_us: _Optional[int] = ..., planned_nodes: _Optional[str] = ..., alternatives: _Optional[_Iterable[_Union[Alternative, _Mapping]]] = ..., ahead: _Optional[int] = ..., priority: _Optional[int] = ..., factors: _Optional[str] = ..., revision: _Optional[int] = ..., now_us: _Optional[int] = ..., start_earliest_us: _Optional[int] = ..., start_latest_us: _Optional[int] = ...) -> None: ...

class PlanRequest(_message.Message):
    __slots__ = ("until_us", "partition", "limit")
    UNTIL_US_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    until_us: int
    partition: str
    limit: int
    def __init__(self, until_us: _Optional[int] = ..., partition: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class PlannedJob(_message.Message):
    __slots__ = ("job_id", "array_job_id", "array_task", "user", "name", "partition", "running", "start_us", "end_us", "nodes", "node_count", "cores", "tasks", "start_earliest_us", "start_latest_us")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ARRAY_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ARRAY_TASK_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    START_US_FIELD_NUMBER: _ClassVar[int]
    END_US_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    NODE_COUNT_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    START_EARLIEST_US_FIELD_NUMBER: _ClassVar[int]
    START_LATEST_US_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    array_job_id: int
    array_task: int
    user: str
    name: str
    partition: str
    running: bool
    start_us: int
    end_us: int
    nodes: str
    node_count: int
    cores: int
    tasks: int
    start_earliest_us: int
    start_latest_us: int
    def __init__(self, job_id: _Optional[int] = ..., array_job_id: _Optional[int] = ..., array_task: _Optional[int] = ..., user: _Optional[str] = ..., name: _Optional[str] = ..., partition: _Optional[str] = ..., running: _Optional[bool] = ..., start_us: _Optional[int] = ..., end_us: _Optional[int] = ..., nodes: _Optional[str] = ..., node_count: _Optional[int] = ..., cores: _Optional[int] = ..., tasks: _Optional[int] = ..., start_earliest_us: _Optional[int] = ..., start_latest_us: _Optional[int] = ...) -> None: ...

class PlanReply(_message.Message):
    __slots__ = ("policy", "jobs", "waiting", "made_us", "now_us", "nodes", "slots", "reservations")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    MADE_US_FIELD_NUMBER: _ClassVar[int]
    NOW_US_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    RESERVATIONS_FIELD_NUMBER: _ClassVar[int]
    policy: str
    jobs: _containers.RepeatedCompositeFieldContainer[PlannedJob]
    waiting: int
    made_us: int
    now_us: int
    nodes: int
    slots: int
    reservations: _containers.RepeatedCompositeFieldContainer[PlannedJob]
    def __init__(self, policy: _Optional[str] = ..., jobs: _Optional[_Iterable[_Union[PlannedJob, _Mapping]]] = ..., waiting: _Optional[int] = ..., made_us: _Optional[int] = ..., now_us: _Optional[int] = ..., nodes: _Optional[int] = ..., slots: _Optional[int] = ..., reservations: _Optional[_Iterable[_Union[PlannedJob, _Mapping]]] = ...) -> None: ...

class SharesRequest(_message.Message):
    __slots__ = ("priorities", "jobs")
    PRIORITIES_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    priorities: bool
    jobs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, priorities: _Optional[bool] = ..., jobs: _Optional[_Iterable[int]] = ...) -> None: ...

class ShareInfo(_message.Message):
    __slots__ = ("account", "user", "parent", "shares", "norm_shares", "usage", "norm_usage", "level", "factor", "others")
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    NORM_SHARES_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    NORM_USAGE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    account: str
    user: str
    parent: str
    shares: int
    norm_shares: float
    usage: float
    norm_usage: float
    level: float
    factor: float
    others: float
    def __init__(self, account: _Optional[str] = ..., user: _Optional[str] = ..., parent: _Optional[str] = ..., shares: _Optional[int] = ..., norm_shares: _Optional[float] = ..., usage: _Optional[float] = ..., norm_usage: _Optional[float] = ..., level: _Optional[float] = ..., factor: _Optional[float] = ..., others: _Optional[float] = ...) -> None: ...

class CellUsageInfo(_message.Message):
    __slots__ = ("cell", "age_ms", "problem", "left_out")
    CELL_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    cell: str
    age_ms: int
    problem: str
    left_out: int
    def __init__(self, cell: _Optional[str] = ..., age_ms: _Optional[int] = ..., problem: _Optional[str] = ..., left_out: _Optional[int] = ...) -> None: ...

class PriorityInfo(_message.Message):
    __slots__ = ("job_id", "user", "account", "partition", "qos", "priority", "given", "age_points", "fairshare_points", "size_points", "partition_points", "qos_points", "nice")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    GIVEN_FIELD_NUMBER: _ClassVar[int]
    AGE_POINTS_FIELD_NUMBER: _ClassVar[int]
    FAIRSHARE_POINTS_FIELD_NUMBER: _ClassVar[int]
    SIZE_POINTS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_POINTS_FIELD_NUMBER: _ClassVar[int]
    QOS_POINTS_FIELD_NUMBER: _ClassVar[int]
    NICE_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    user: str
    account: str
    partition: str
    qos: str
    priority: int
    given: bool
    age_points: float
    fairshare_points: float
    size_points: float
    partition_points: float
    qos_points: float
    nice: int
    def __init__(self, job_id: _Optional[int] = ..., user: _Optional[str] = ..., account: _Optional[str] = ..., partition: _Optional[str] = ..., qos: _Optional[str] = ..., priority: _Optional[int] = ..., given: _Optional[bool] = ..., age_points: _Optional[float] = ..., fairshare_points: _Optional[float] = ..., size_points: _Optional[float] = ..., partition_points: _Optional[float] = ..., qos_points: _Optional[float] = ..., nice: _Optional[int] = ...) -> None: ...

class SharesReply(_message.Message):
    __slots__ = ("shares", "half_life_s", "now_us", "priorities", "sums", "cells")
    SHARES_FIELD_NUMBER: _ClassVar[int]
    HALF_LIFE_S_FIELD_NUMBER: _ClassVar[int]
    NOW_US_FIELD_NUMBER: _ClassVar[int]
    PRIORITIES_FIELD_NUMBER: _ClassVar[int]
    SUMS_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    shares: _containers.RepeatedCompositeFieldContainer[ShareInfo]
    half_life_s: int
    now_us: int
    priorities: _containers.RepeatedCompositeFieldContainer[PriorityInfo]
    sums: bool
    cells: _containers.RepeatedCompositeFieldContainer[CellUsageInfo]
    def __init__(self, shares: _Optional[_Iterable[_Union[ShareInfo, _Mapping]]] = ..., half_life_s: _Optional[int] = ..., now_us: _Optional[int] = ..., priorities: _Optional[_Iterable[_Union[PriorityInfo, _Mapping]]] = ..., sums: _Optional[bool] = ..., cells: _Optional[_Iterable[_Union[CellUsageInfo, _Mapping]]] = ...) -> None: ...

class SuspendRequest(_message.Message):
    __slots__ = ("jobs", "resume")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobRef]
    resume: bool
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobRef, _Mapping]]] = ..., resume: _Optional[bool] = ...) -> None: ...

class JobFeedRequest(_message.Message):
    __slots__ = ("cursor", "wait_ms", "events_max")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_MAX_FIELD_NUMBER: _ClassVar[int]
    cursor: int
    wait_ms: int
    events_max: int
    def __init__(self, cursor: _Optional[int] = ..., wait_ms: _Optional[int] = ..., events_max: _Optional[int] = ...) -> None: ...

class JobEvent(_message.Message):
    __slots__ = ("kind", "job_id", "at_us", "runtime_s", "job")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNKNOWN: _ClassVar[JobEvent.Kind]
        SUBMITTED: _ClassVar[JobEvent.Kind]
        STARTED: _ClassVar[JobEvent.Kind]
        ENDED: _ClassVar[JobEvent.Kind]
        CHANGED: _ClassVar[JobEvent.Kind]
        REQUEUED: _ClassVar[JobEvent.Kind]
    KIND_UNKNOWN: JobEvent.Kind
    SUBMITTED: JobEvent.Kind
    STARTED: JobEvent.Kind
    ENDED: JobEvent.Kind
    CHANGED: JobEvent.Kind
    REQUEUED: JobEvent.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AT_US_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_S_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    kind: JobEvent.Kind
    job_id: int
    at_us: int
    runtime_s: int
    job: JobDescription
    def __init__(self, kind: _Optional[_Union[JobEvent.Kind, str]] = ..., job_id: _Optional[int] = ..., at_us: _Optional[int] = ..., runtime_s: _Optional[int] = ..., job: _Optional[_Union[JobDescription, _Mapping]] = ...) -> None: ...

class JobDescription(_message.Message):
    __slots__ = ("user", "group", "account", "name", "command", "partition", "nodes", "cores", "memory_mib", "limit_s")
    USER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    LIMIT_S_FIELD_NUMBER: _ClassVar[int]
    user: str
    group: str
    account: str
    name: str
    command: str
    partition: str
    nodes: int
    cores: int
    memory_mib: int
    limit_s: int
    def __init__(self, user: _Optional[str] = ..., group: _Optional[str] = ..., account: _Optional[str] = ..., name: _Optional[str] = ..., command: _Optional[str] = ..., partition: _Optional[str] = ..., nodes: _Optional[int] = ..., cores: _Optional[int] = ..., memory_mib: _Optional[int] = ..., limit_s: _Optional[int] = ...) -> None: ...

class JobFeedReply(_message.Message):
    __slots__ = ("events", "next", "from_start")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    FROM_START_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[JobEvent]
    next: int
    from_start: bool
    def __init__(self, events: _Optional[_Iterable[_Union[JobEvent, _Mapping]]] = ..., next: _Optional[int] = ..., from_start: _Optional[bool] = ...) -> None: ...

class Forecast(_message.Message):
    __slots__ = ("p10_s", "p50_s", "p90_s", "estimate_s")
    P10_S_FIELD_NUMBER: _ClassVar[int]
    P50_S_FIELD_NUMBER: _ClassVar[int]
    P90_S_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_S_FIELD_NUMBER: _ClassVar[int]
    p10_s: int
    p50_s: int
    p90_s: int
    estimate_s: int
    def __init__(self, p10_s: _Optional[int] = ..., p50_s: _Optional[int] = ..., p90_s: _Optional[int] = ..., estimate_s: _Optional[int] = ...) -> None: ...

class JobForecast(_message.Message):
    __slots__ = ("job_id", "forecast")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    FORECAST_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    forecast: Forecast
    def __init__(self, job_id: _Optional[int] = ..., forecast: _Optional[_Union[Forecast, _Mapping]] = ...) -> None: ...

class SetForecastsRequest(_message.Message):
    __slots__ = ("forecasts", "model")
    FORECASTS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    forecasts: _containers.RepeatedCompositeFieldContainer[JobForecast]
    model: str
    def __init__(self, forecasts: _Optional[_Iterable[_Union[JobForecast, _Mapping]]] = ..., model: _Optional[str] = ...) -> None: ...

class AuditRequest(_message.Message):
    __slots__ = ("since_us", "user", "refused", "limit")
    SINCE_US_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    since_us: int
    user: str
    refused: bool
    limit: int
    def __init__(self, since_us: _Optional[int] = ..., user: _Optional[str] = ..., refused: _Optional[bool] = ..., limit: _Optional[int] = ...) -> None: ...

class AuditReply(_message.Message):
    __slots__ = ("lines", "controller")
    LINES_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedScalarFieldContainer[str]
    controller: str
    def __init__(self, lines: _Optional[_Iterable[str]] = ..., controller: _Optional[str] = ...) -> None: ...

class CreateTokenRequest(_message.Message):
    __slots__ = ("user", "scope", "life_s")
    USER_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LIFE_S_FIELD_NUMBER: _ClassVar[int]
    user: str
    scope: str
    life_s: int
    def __init__(self, user: _Optional[str] = ..., scope: _Optional[str] = ..., life_s: _Optional[int] = ...) -> None: ...

class CreateTokenReply(_message.Message):
    __slots__ = ("token", "info", "gid", "cluster")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    GID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    token: str
    info: TokenInfo
    gid: int
    cluster: str
    def __init__(self, token: _Optional[str] = ..., info: _Optional[_Union[TokenInfo, _Mapping]] = ..., gid: _Optional[int] = ..., cluster: _Optional[str] = ...) -> None: ...

class TokenInfo(_message.Message):
    __slots__ = ("id", "user", "uid", "scope", "issued_us", "expires_us", "by", "via")
    ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    ISSUED_US_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_US_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    VIA_FIELD_NUMBER: _ClassVar[int]
    id: str
    user: str
    uid: int
    scope: str
    issued_us: int
    expires_us: int
    by: str
    via: str
    def __init__(self, id: _Optional[str] = ..., user: _Optional[str] = ..., uid: _Optional[int] = ..., scope: _Optional[str] = ..., issued_us: _Optional[int] = ..., expires_us: _Optional[int] = ..., by: _Optional[str] = ..., via: _Optional[str] = ...) -> None: ...

class TokensRequest(_message.Message):
    __slots__ = ("user",)
    USER_FIELD_NUMBER: _ClassVar[int]
    user: str
    def __init__(self, user: _Optional[str] = ...) -> None: ...

class TokensReply(_message.Message):
    __slots__ = ("tokens",)
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[TokenInfo]
    def __init__(self, tokens: _Optional[_Iterable[_Union[TokenInfo, _Mapping]]] = ...) -> None: ...

class RevokeTokensRequest(_message.Message):
    __slots__ = ("ids", "user")
    IDS_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    user: str
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., user: _Optional[str] = ...) -> None: ...

class CreateJoinTokenRequest(_message.Message):
    __slots__ = ("role", "names", "uses", "life_s")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    USES_FIELD_NUMBER: _ClassVar[int]
    LIFE_S_FIELD_NUMBER: _ClassVar[int]
    role: str
    names: str
    uses: int
    life_s: int
    def __init__(self, role: _Optional[str] = ..., names: _Optional[str] = ..., uses: _Optional[int] = ..., life_s: _Optional[int] = ...) -> None: ...

class CreateJoinTokenReply(_message.Message):
    __slots__ = ("token", "id", "expires_us")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_US_FIELD_NUMBER: _ClassVar[int]
    token: str
    id: str
    expires_us: int
    def __init__(self, token: _Optional[str] = ..., id: _Optional[str] = ..., expires_us: _Optional[int] = ...) -> None: ...

class JoinsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class JoinsReply(_message.Message):
    __slots__ = ("pending", "tokens", "members")
    PENDING_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    pending: _containers.RepeatedCompositeFieldContainer[PendingJoin]
    tokens: _containers.RepeatedCompositeFieldContainer[JoinTokenInfo]
    members: _containers.RepeatedCompositeFieldContainer[MemberInfo]
    def __init__(self, pending: _Optional[_Iterable[_Union[PendingJoin, _Mapping]]] = ..., tokens: _Optional[_Iterable[_Union[JoinTokenInfo, _Mapping]]] = ..., members: _Optional[_Iterable[_Union[MemberInfo, _Mapping]]] = ...) -> None: ...

class PendingJoin(_message.Message):
    __slots__ = ("role", "names", "fingerprint", "address", "since_us")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SINCE_US_FIELD_NUMBER: _ClassVar[int]
    role: str
    names: str
    fingerprint: str
    address: str
    since_us: int
    def __init__(self, role: _Optional[str] = ..., names: _Optional[str] = ..., fingerprint: _Optional[str] = ..., address: _Optional[str] = ..., since_us: _Optional[int] = ...) -> None: ...

class JoinTokenInfo(_message.Message):
    __slots__ = ("id", "role", "names", "uses_left", "issued_us", "expires_us", "by")
    ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    USES_LEFT_FIELD_NUMBER: _ClassVar[int]
    ISSUED_US_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_US_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    id: str
    role: str
    names: str
    uses_left: int
    issued_us: int
    expires_us: int
    by: str
    def __init__(self, id: _Optional[str] = ..., role: _Optional[str] = ..., names: _Optional[str] = ..., uses_left: _Optional[int] = ..., issued_us: _Optional[int] = ..., expires_us: _Optional[int] = ..., by: _Optional[str] = ...) -> None: ...

class MemberInfo(_message.Message):
    __slots__ = ("serial", "role", "names", "fingerprint", "since_us", "by", "address", "join_id")
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    SINCE_US_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    JOIN_ID_FIELD_NUMBER: _ClassVar[int]
    serial: str
    role: str
    names: str
    fingerprint: str
    since_us: int
    by: str
    address: str
    join_id: str
    def __init__(self, serial: _Optional[str] = ..., role: _Optional[str] = ..., names: _Optional[str] = ..., fingerprint: _Optional[str] = ..., since_us: _Optional[int] = ..., by: _Optional[str] = ..., address: _Optional[str] = ..., join_id: _Optional[str] = ...) -> None: ...

class DecideJoinRequest(_message.Message):
    __slots__ = ("name", "fingerprint", "deny")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    DENY_FIELD_NUMBER: _ClassVar[int]
    name: str
    fingerprint: str
    deny: bool
    def __init__(self, name: _Optional[str] = ..., fingerprint: _Optional[str] = ..., deny: _Optional[bool] = ...) -> None: ...

class RevokeMembersRequest(_message.Message):
    __slots__ = ("which", "join_ids")
    WHICH_FIELD_NUMBER: _ClassVar[int]
    JOIN_IDS_FIELD_NUMBER: _ClassVar[int]
    which: _containers.RepeatedScalarFieldContainer[str]
    join_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, which: _Optional[_Iterable[str]] = ..., join_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class MovePackRequest(_message.Message):
    __slots__ = ("job", "earlier_s", "to_us", "dry_run")
    JOB_FIELD_NUMBER: _ClassVar[int]
    EARLIER_S_FIELD_NUMBER: _ClassVar[int]
    TO_US_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    job: JobRef
    earlier_s: int
    to_us: int
    dry_run: bool
    def __init__(self, job: _Optional[_Union[JobRef, _Mapping]] = ..., earlier_s: _Optional[int] = ..., to_us: _Optional[int] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class MovedStart(_message.Message):
    __slots__ = ("job_id", "pack_index", "before_us", "after_us")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PACK_INDEX_FIELD_NUMBER: _ClassVar[int]
    BEFORE_US_FIELD_NUMBER: _ClassVar[int]
    AFTER_US_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    pack_index: int
    before_us: int
    after_us: int
    def __init__(self, job_id: _Optional[int] = ..., pack_index: _Optional[int] = ..., before_us: _Optional[int] = ..., after_us: _Optional[int] = ...) -> None: ...

class MovePackReply(_message.Message):
    __slots__ = ("open", "pack_id", "starts", "earlier_us", "text", "revision")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    PACK_ID_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    EARLIER_US_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    open: bool
    pack_id: int
    starts: _containers.RepeatedCompositeFieldContainer[MovedStart]
    earlier_us: int
    text: str
    revision: int
    def __init__(self, open: _Optional[bool] = ..., pack_id: _Optional[int] = ..., starts: _Optional[_Iterable[_Union[MovedStart, _Mapping]]] = ..., earlier_us: _Optional[int] = ..., text: _Optional[str] = ..., revision: _Optional[int] = ...) -> None: ...

class ExtendJobRequest(_message.Message):
    __slots__ = ("job", "by_s", "to_s", "dry_run")
    JOB_FIELD_NUMBER: _ClassVar[int]
    BY_S_FIELD_NUMBER: _ClassVar[int]
    TO_S_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    job: JobRef
    by_s: int
    to_s: int
    dry_run: bool
    def __init__(self, job: _Optional[_Union[JobRef, _Mapping]] = ..., by_s: _Optional[int] = ..., to_s: _Optional[int] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class ExtendJobReply(_message.Message):
    __slots__ = ("open", "job_id", "before_s", "after_s", "until_before_us", "until_after_us", "text", "revision")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    BEFORE_S_FIELD_NUMBER: _ClassVar[int]
    AFTER_S_FIELD_NUMBER: _ClassVar[int]
    UNTIL_BEFORE_US_FIELD_NUMBER: _ClassVar[int]
    UNTIL_AFTER_US_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    open: bool
    job_id: int
    before_s: int
    after_s: int
    until_before_us: int
    until_after_us: int
    text: str
    revision: int
    def __init__(self, open: _Optional[bool] = ..., job_id: _Optional[int] = ..., before_s: _Optional[int] = ..., after_s: _Optional[int] = ..., until_before_us: _Optional[int] = ..., until_after_us: _Optional[int] = ..., text: _Optional[str] = ..., revision: _Optional[int] = ...) -> None: ...

class FederationRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FederationReply(_message.Message):
    __slots__ = ("name", "cell", "state", "problem", "age_ms", "cells", "members", "values_skipped", "ids")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CELL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    VALUES_SKIPPED_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    cell: str
    state: str
    problem: str
    age_ms: int
    cells: _containers.RepeatedCompositeFieldContainer[CellInfo]
    members: _containers.RepeatedCompositeFieldContainer[StoreMemberInfo]
    values_skipped: int
    ids: JobIdsInfo
    def __init__(self, name: _Optional[str] = ..., cell: _Optional[str] = ..., state: _Optional[str] = ..., problem: _Optional[str] = ..., age_ms: _Optional[int] = ..., cells: _Optional[_Iterable[_Union[CellInfo, _Mapping]]] = ..., members: _Optional[_Iterable[_Union[StoreMemberInfo, _Mapping]]] = ..., values_skipped: _Optional[int] = ..., ids: _Optional[_Union[JobIdsInfo, _Mapping]] = ...) -> None: ...

class JobIdsInfo(_message.Message):
    __slots__ = ("left", "reserve", "unleased", "problem", "in_hand")
    LEFT_FIELD_NUMBER: _ClassVar[int]
    RESERVE_FIELD_NUMBER: _ClassVar[int]
    UNLEASED_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    IN_HAND_FIELD_NUMBER: _ClassVar[int]
    left: int
    reserve: int
    unleased: int
    problem: str
    in_hand: _containers.RepeatedCompositeFieldContainer[JobIdRange]
    def __init__(self, left: _Optional[int] = ..., reserve: _Optional[int] = ..., unleased: _Optional[int] = ..., problem: _Optional[str] = ..., in_hand: _Optional[_Iterable[_Union[JobIdRange, _Mapping]]] = ...) -> None: ...

class JobIdRange(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class ChangeFederationRequest(_message.Message):
    __slots__ = ("action", "cell")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    CELL_FIELD_NUMBER: _ClassVar[int]
    action: str
    cell: str
    def __init__(self, action: _Optional[str] = ..., cell: _Optional[str] = ...) -> None: ...

class ChangeFederationReply(_message.Message):
    __slots__ = ("name", "cell", "state", "problem", "draining", "done", "revision")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CELL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    name: str
    cell: str
    state: str
    problem: str
    draining: bool
    done: bool
    revision: int
    def __init__(self, name: _Optional[str] = ..., cell: _Optional[str] = ..., state: _Optional[str] = ..., problem: _Optional[str] = ..., draining: _Optional[bool] = ..., done: _Optional[bool] = ..., revision: _Optional[int] = ...) -> None: ...

class CallCellRequest(_message.Message):
    __slots__ = ("cell", "method", "request")
    CELL_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    cell: str
    method: str
    request: bytes
    def __init__(self, cell: _Optional[str] = ..., method: _Optional[str] = ..., request: _Optional[bytes] = ...) -> None: ...

class CallCellReply(_message.Message):
    __slots__ = ("reply",)
    REPLY_FIELD_NUMBER: _ClassVar[int]
    reply: bytes
    def __init__(self, reply: _Optional[bytes] = ...) -> None: ...

class CellInfo(_message.Message):
    __slots__ = ("name", "number", "state", "endpoint", "epoch", "build", "since_us", "age_ms", "nodes", "nodes_free", "cores", "cores_free", "jobs_waiting", "jobs_running", "draining", "classes", "silent_ms", "problem", "ids")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BUILD_FIELD_NUMBER: _ClassVar[int]
    SINCE_US_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    NODES_FREE_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    CORES_FREE_FIELD_NUMBER: _ClassVar[int]
    JOBS_WAITING_FIELD_NUMBER: _ClassVar[int]
    JOBS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    SILENT_MS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    number: int
    state: str
    endpoint: str
    epoch: int
    build: str
    since_us: int
    age_ms: int
    nodes: int
    nodes_free: int
    cores: int
    cores_free: int
    jobs_waiting: int
    jobs_running: int
    draining: bool
    classes: _containers.RepeatedCompositeFieldContainer[NodeClassInfo]
    silent_ms: int
    problem: str
    ids: int
    def __init__(self, name: _Optional[str] = ..., number: _Optional[int] = ..., state: _Optional[str] = ..., endpoint: _Optional[str] = ..., epoch: _Optional[int] = ..., build: _Optional[str] = ..., since_us: _Optional[int] = ..., age_ms: _Optional[int] = ..., nodes: _Optional[int] = ..., nodes_free: _Optional[int] = ..., cores: _Optional[int] = ..., cores_free: _Optional[int] = ..., jobs_waiting: _Optional[int] = ..., jobs_running: _Optional[int] = ..., draining: _Optional[bool] = ..., classes: _Optional[_Iterable[_Union[NodeClassInfo, _Mapping]]] = ..., silent_ms: _Optional[int] = ..., problem: _Optional[str] = ..., ids: _Optional[int] = ...) -> None: ...

class NodeClassInfo(_message.Message):
    __slots__ = ("cores", "memory_mib", "resources", "features", "partitions", "nodes", "nodes_free")
    CORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    NODES_FREE_FIELD_NUMBER: _ClassVar[int]
    cores: int
    memory_mib: int
    resources: _containers.RepeatedScalarFieldContainer[str]
    features: _containers.RepeatedScalarFieldContainer[str]
    partitions: _containers.RepeatedScalarFieldContainer[str]
    nodes: int
    nodes_free: int
    def __init__(self, cores: _Optional[int] = ..., memory_mib: _Optional[int] = ..., resources: _Optional[_Iterable[str]] = ..., features: _Optional[_Iterable[str]] = ..., partitions: _Optional[_Iterable[str]] = ..., nodes: _Optional[int] = ..., nodes_free: _Optional[int] = ...) -> None: ...

class StoreMemberInfo(_message.Message):
    __slots__ = ("endpoint", "version", "is_leader", "size_bytes", "alarms", "error")
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    IS_LEADER_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ALARMS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    endpoint: str
    version: str
    is_leader: bool
    size_bytes: int
    alarms: _containers.RepeatedScalarFieldContainer[str]
    error: str
    def __init__(self, endpoint: _Optional[str] = ..., version: _Optional[str] = ..., is_leader: _Optional[bool] = ..., size_bytes: _Optional[int] = ..., alarms: _Optional[_Iterable[str]] = ..., error: _Optional[str] = ...) -> None: ...

class ResizeJobRequest(_message.Message):
    __slots__ = ("job", "by_nodes", "to_nodes", "nodes", "without", "dry_run")
    JOB_FIELD_NUMBER: _ClassVar[int]
    BY_NODES_FIELD_NUMBER: _ClassVar[int]
    TO_NODES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    job: JobRef
    by_nodes: int
    to_nodes: int
    nodes: _containers.RepeatedScalarFieldContainer[str]
    without: _containers.RepeatedScalarFieldContainer[str]
    dry_run: bool
    def __init__(self, job: _Optional[_Union[JobRef, _Mapping]] = ..., by_nodes: _Optional[int] = ..., to_nodes: _Optional[int] = ..., nodes: _Optional[_Iterable[str]] = ..., without: _Optional[_Iterable[str]] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class ResizeJobReply(_message.Message):
    __slots__ = ("job_id", "before", "after", "leaving", "steps", "growth_id", "more", "withdrawn", "state", "planned_start_us", "reason", "revision")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    GROWTH_ID_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PLANNED_START_US_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    before: Amounts
    after: Amounts
    leaving: str
    steps: _containers.RepeatedScalarFieldContainer[int]
    growth_id: int
    more: int
    withdrawn: int
    state: str
    planned_start_us: int
    reason: str
    revision: int
    def __init__(self, job_id: _Optional[int] = ..., before: _Optional[_Union[Amounts, _Mapping]] = ..., after: _Optional[_Union[Amounts, _Mapping]] = ..., leaving: _Optional[str] = ..., steps: _Optional[_Iterable[int]] = ..., growth_id: _Optional[int] = ..., more: _Optional[int] = ..., withdrawn: _Optional[int] = ..., state: _Optional[str] = ..., planned_start_us: _Optional[int] = ..., reason: _Optional[str] = ..., revision: _Optional[int] = ...) -> None: ...

class StatisticsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatisticsReply(_message.Message):
    __slots__ = ("now_us", "since_us", "calls_open", "messages_waiting", "broadcasts_waiting", "broadcasts_open", "jobs_pending", "jobs_running", "jobs_submitted", "attempts_started", "ended", "cycles", "calls", "users", "users_skipped")
    NOW_US_FIELD_NUMBER: _ClassVar[int]
    SINCE_US_FIELD_NUMBER: _ClassVar[int]
    CALLS_OPEN_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_WAITING_FIELD_NUMBER: _ClassVar[int]
    BROADCASTS_WAITING_FIELD_NUMBER: _ClassVar[int]
    BROADCASTS_OPEN_FIELD_NUMBER: _ClassVar[int]
    JOBS_PENDING_FIELD_NUMBER: _ClassVar[int]
    JOBS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    JOBS_SUBMITTED_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_STARTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    CYCLES_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    USERS_SKIPPED_FIELD_NUMBER: _ClassVar[int]
    now_us: int
    since_us: int
    calls_open: int
    messages_waiting: int
    broadcasts_waiting: int
    broadcasts_open: int
    jobs_pending: int
    jobs_running: int
    jobs_submitted: int
    attempts_started: int
    ended: _containers.RepeatedCompositeFieldContainer[StateCount]
    cycles: CycleCounts
    calls: _containers.RepeatedCompositeFieldContainer[CallCounts]
    users: _containers.RepeatedCompositeFieldContainer[CallCounts]
    users_skipped: int
    def __init__(self, now_us: _Optional[int] = ..., since_us: _Optional[int] = ..., calls_open: _Optional[int] = ..., messages_waiting: _Optional[int] = ..., broadcasts_waiting: _Optional[int] = ..., broadcasts_open: _Optional[int] = ..., jobs_pending: _Optional[int] = ..., jobs_running: _Optional[int] = ..., jobs_submitted: _Optional[int] = ..., attempts_started: _Optional[int] = ..., ended: _Optional[_Iterable[_Union[StateCount, _Mapping]]] = ..., cycles: _Optional[_Union[CycleCounts, _Mapping]] = ..., calls: _Optional[_Iterable[_Union[CallCounts, _Mapping]]] = ..., users: _Optional[_Iterable[_Union[CallCounts, _Mapping]]] = ..., users_skipped: _Optional[int] = ...) -> None: ...

class StateCount(_message.Message):
    __slots__ = ("state", "count")
    STATE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    state: str
    count: int
    def __init__(self, state: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class CycleCounts(_message.Message):
    __slots__ = ("count", "is_running", "last_at_us", "last_us", "max_us", "sum_us", "depth_last", "depth_sum", "queue_last", "queue_sum", "slots_last", "slots_sum", "bounded")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    IS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    LAST_AT_US_FIELD_NUMBER: _ClassVar[int]
    LAST_US_FIELD_NUMBER: _ClassVar[int]
    MAX_US_FIELD_NUMBER: _ClassVar[int]
    SUM_US_FIELD_NUMBER: _ClassVar[int]
    DEPTH_LAST_FIELD_NUMBER: _ClassVar[int]
    DEPTH_SUM_FIELD_NUMBER: _ClassVar[int]
    QUEUE_LAST_FIELD_NUMBER: _ClassVar[int]
    QUEUE_SUM_FIELD_NUMBER: _ClassVar[int]
    SLOTS_LAST_FIELD_NUMBER: _ClassVar[int]
    SLOTS_SUM_FIELD_NUMBER: _ClassVar[int]
    BOUNDED_FIELD_NUMBER: _ClassVar[int]
    count: int
    is_running: bool
    last_at_us: int
    last_us: int
    max_us: int
    sum_us: int
    depth_last: int
    depth_sum: int
    queue_last: int
    queue_sum: int
    slots_last: int
    slots_sum: int
    bounded: int
    def __init__(self, count: _Optional[int] = ..., is_running: _Optional[bool] = ..., last_at_us: _Optional[int] = ..., last_us: _Optional[int] = ..., max_us: _Optional[int] = ..., sum_us: _Optional[int] = ..., depth_last: _Optional[int] = ..., depth_sum: _Optional[int] = ..., queue_last: _Optional[int] = ..., queue_sum: _Optional[int] = ..., slots_last: _Optional[int] = ..., slots_sum: _Optional[int] = ..., bounded: _Optional[int] = ...) -> None: ...

class CallCounts(_message.Message):
    __slots__ = ("number", "name", "count", "spent_us")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SPENT_US_FIELD_NUMBER: _ClassVar[int]
    number: int
    name: str
    count: int
    spent_us: int
    def __init__(self, number: _Optional[int] = ..., name: _Optional[str] = ..., count: _Optional[int] = ..., spent_us: _Optional[int] = ...) -> None: ...

class ReconfigureRequest(_message.Message):
    __slots__ = ("dry_run",)
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    dry_run: bool
    def __init__(self, dry_run: _Optional[bool] = ...) -> None: ...

class ReconfigureReply(_message.Message):
    __slots__ = ("problems", "changed", "needs_restart", "standbys", "revision")
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    NEEDS_RESTART_FIELD_NUMBER: _ClassVar[int]
    STANDBYS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    problems: _containers.RepeatedCompositeFieldContainer[Problem]
    changed: _containers.RepeatedScalarFieldContainer[str]
    needs_restart: _containers.RepeatedScalarFieldContainer[str]
    standbys: _containers.RepeatedScalarFieldContainer[str]
    revision: int
    def __init__(self, problems: _Optional[_Iterable[_Union[Problem, _Mapping]]] = ..., changed: _Optional[_Iterable[str]] = ..., needs_restart: _Optional[_Iterable[str]] = ..., standbys: _Optional[_Iterable[str]] = ..., revision: _Optional[int] = ...) -> None: ...

class JobScriptRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: JobRef
    def __init__(self, job: _Optional[_Union[JobRef, _Mapping]] = ...) -> None: ...

class JobScriptReply(_message.Message):
    __slots__ = ("script",)
    SCRIPT_FIELD_NUMBER: _ClassVar[int]
    script: bytes
    def __init__(self, script: _Optional[bytes] = ...) -> None: ...

class CrontabRequest(_message.Message):
    __slots__ = ("user",)
    USER_FIELD_NUMBER: _ClassVar[int]
    user: str
    def __init__(self, user: _Optional[str] = ...) -> None: ...

class CrontabReply(_message.Message):
    __slots__ = ("user", "text", "lines")
    USER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    user: str
    text: str
    lines: _containers.RepeatedCompositeFieldContainer[CrontabLine]
    def __init__(self, user: _Optional[str] = ..., text: _Optional[str] = ..., lines: _Optional[_Iterable[_Union[CrontabLine, _Mapping]]] = ...) -> None: ...

class CrontabLine(_message.Message):
    __slots__ = ("line", "job_id")
    LINE_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    line: int
    job_id: int
    def __init__(self, line: _Optional[int] = ..., job_id: _Optional[int] = ...) -> None: ...

class SetCrontabRequest(_message.Message):
    __slots__ = ("user", "text", "jobs")
    USER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    user: str
    text: str
    jobs: _containers.RepeatedCompositeFieldContainer[CronJob]
    def __init__(self, user: _Optional[str] = ..., text: _Optional[str] = ..., jobs: _Optional[_Iterable[_Union[CronJob, _Mapping]]] = ...) -> None: ...

class CronJob(_message.Message):
    __slots__ = ("line", "first", "schedule", "job")
    LINE_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    line: int
    first: int
    schedule: str
    job: JobRequest
    def __init__(self, line: _Optional[int] = ..., first: _Optional[int] = ..., schedule: _Optional[str] = ..., job: _Optional[_Union[JobRequest, _Mapping]] = ...) -> None: ...

class UpdatePartitionsRequest(_message.Message):
    __slots__ = ("names", "state")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    state: str
    def __init__(self, names: _Optional[_Iterable[str]] = ..., state: _Optional[str] = ...) -> None: ...

class StepsRequest(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobRef]
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobRef, _Mapping]]] = ...) -> None: ...

class StepsReply(_message.Message):
    __slots__ = ("steps", "now_us")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    NOW_US_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.RepeatedCompositeFieldContainer[StepInfo]
    now_us: int
    def __init__(self, steps: _Optional[_Iterable[_Union[StepInfo, _Mapping]]] = ..., now_us: _Optional[int] = ...) -> None: ...

class StepInfo(_message.Message):
    __slots__ = ("job_id", "array_job_id", "array_task", "is_batch", "step", "name", "state", "user", "uid", "partition", "node_names", "nodes", "tasks", "cpus", "created_us")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ARRAY_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ARRAY_TASK_FIELD_NUMBER: _ClassVar[int]
    IS_BATCH_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    NODE_NAMES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    CREATED_US_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    array_job_id: int
    array_task: int
    is_batch: bool
    step: int
    name: str
    state: str
    user: str
    uid: int
    partition: str
    node_names: str
    nodes: int
    tasks: int
    cpus: int
    created_us: int
    def __init__(self, job_id: _Optional[int] = ..., array_job_id: _Optional[int] = ..., array_task: _Optional[int] = ..., is_batch: _Optional[bool] = ..., step: _Optional[int] = ..., name: _Optional[str] = ..., state: _Optional[str] = ..., user: _Optional[str] = ..., uid: _Optional[int] = ..., partition: _Optional[str] = ..., node_names: _Optional[str] = ..., nodes: _Optional[int] = ..., tasks: _Optional[int] = ..., cpus: _Optional[int] = ..., created_us: _Optional[int] = ...) -> None: ...

class TopJobRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: JobRef
    def __init__(self, job: _Optional[_Union[JobRef, _Mapping]] = ...) -> None: ...

class StepUsageRequest(_message.Message):
    __slots__ = ("job", "steps", "processes", "node")
    JOB_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    job: JobRef
    steps: _containers.RepeatedScalarFieldContainer[int]
    processes: bool
    node: str
    def __init__(self, job: _Optional[_Union[JobRef, _Mapping]] = ..., steps: _Optional[_Iterable[int]] = ..., processes: _Optional[bool] = ..., node: _Optional[str] = ...) -> None: ...

class StepUsageReply(_message.Message):
    __slots__ = ("steps", "silent")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    SILENT_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.RepeatedCompositeFieldContainer[StepUsageInfo]
    silent: _containers.RepeatedCompositeFieldContainer[NodeSilence]
    def __init__(self, steps: _Optional[_Iterable[_Union[StepUsageInfo, _Mapping]]] = ..., silent: _Optional[_Iterable[_Union[NodeSilence, _Mapping]]] = ...) -> None: ...

class StepUsageInfo(_message.Message):
    __slots__ = ("step", "node_names", "tasks", "cpu_us", "memory_kib", "virtual_kib", "faults", "processes", "is_partial")
    STEP_FIELD_NUMBER: _ClassVar[int]
    NODE_NAMES_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    CPU_US_FIELD_NUMBER: _ClassVar[int]
    MEMORY_KIB_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_KIB_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    IS_PARTIAL_FIELD_NUMBER: _ClassVar[int]
    step: int
    node_names: str
    tasks: int
    cpu_us: UsageAmount
    memory_kib: UsageAmount
    virtual_kib: UsageAmount
    faults: UsageAmount
    processes: _containers.RepeatedCompositeFieldContainer[NodeProcesses]
    is_partial: bool
    def __init__(self, step: _Optional[int] = ..., node_names: _Optional[str] = ..., tasks: _Optional[int] = ..., cpu_us: _Optional[_Union[UsageAmount, _Mapping]] = ..., memory_kib: _Optional[_Union[UsageAmount, _Mapping]] = ..., virtual_kib: _Optional[_Union[UsageAmount, _Mapping]] = ..., faults: _Optional[_Union[UsageAmount, _Mapping]] = ..., processes: _Optional[_Iterable[_Union[NodeProcesses, _Mapping]]] = ..., is_partial: _Optional[bool] = ...) -> None: ...

class UsageAmount(_message.Message):
    __slots__ = ("total", "most", "most_task", "most_node", "least", "least_task", "least_node")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    MOST_TASK_FIELD_NUMBER: _ClassVar[int]
    MOST_NODE_FIELD_NUMBER: _ClassVar[int]
    LEAST_FIELD_NUMBER: _ClassVar[int]
    LEAST_TASK_FIELD_NUMBER: _ClassVar[int]
    LEAST_NODE_FIELD_NUMBER: _ClassVar[int]
    total: int
    most: int
    most_task: int
    most_node: str
    least: int
    least_task: int
    least_node: str
    def __init__(self, total: _Optional[int] = ..., most: _Optional[int] = ..., most_task: _Optional[int] = ..., most_node: _Optional[str] = ..., least: _Optional[int] = ..., least_task: _Optional[int] = ..., least_node: _Optional[str] = ...) -> None: ...

class NodeProcesses(_message.Message):
    __slots__ = ("node", "pids", "local_ranks", "first_task")
    NODE_FIELD_NUMBER: _ClassVar[int]
    PIDS_FIELD_NUMBER: _ClassVar[int]
    LOCAL_RANKS_FIELD_NUMBER: _ClassVar[int]
    FIRST_TASK_FIELD_NUMBER: _ClassVar[int]
    node: str
    pids: _containers.RepeatedScalarFieldContainer[int]
    local_ranks: _containers.RepeatedScalarFieldContainer[int]
    first_task: int
    def __init__(self, node: _Optional[str] = ..., pids: _Optional[_Iterable[int]] = ..., local_ranks: _Optional[_Iterable[int]] = ..., first_task: _Optional[int] = ...) -> None: ...

class NodeSilence(_message.Message):
    __slots__ = ("node_names", "why")
    NODE_NAMES_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    node_names: str
    why: str
    def __init__(self, node_names: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...
