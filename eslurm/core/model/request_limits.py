"""Bounds of a request: one table for commands, API and core, so that all refuse by the same rule.

Commands import this module, so it imports nothing. Sizes of text are in characters, those of arguments in bytes, as the
kernel counts them. The bounds keep the largest launch below one frame of a link.
"""

from __future__ import annotations

REFERENCES_MAX = 10_000
"""Entries of any list of a call: jobs, nodes, states, changes."""
NAME_CHARS_MAX = 256
"""Names of jobs, accounts, QOS, reservations and resources."""
PARTITION_CHARS_MAX = 63
RESOURCE_CHARS_MAX = 63
"""Names of GPUs, licences and other resources."""
COMMENT_CHARS_MAX = 1024
REASON_CHARS_MAX = 1024
PATH_CHARS_MAX = 4096
LINE_CHARS_MAX = {"partition": PARTITION_CHARS_MAX, "comment": COMMENT_CHARS_MAX, "command": PATH_CHARS_MAX}
"""Of fields of a job whose bound is not NAME_CHARS_MAX."""
ARGUMENTS_MAX = 16_384
ARGUMENT_BYTES_MAX = 131_071
"""Of one argument: what the kernel takes, without the byte that ends it."""
ARGUMENTS_BYTES_MAX = 256 * 1024
"""Of all arguments of a job or a step together."""
ENVIRONMENT_BYTES_MAX = 2 * 1024 * 1024
SCRIPT_BYTES_MAX = 4 * 1024 * 1024
"""Of a batch script, unless the site allows less (`script_bytes_max`)."""
NODE_NAME_CHARS_MAX = 255
NODES_NAMED_MAX = 32_768
"""Nodes that a job may ask for, or exclude, by name."""
DEPENDENCIES_MAX = 1000
DEPENDENCY_DELAY_MAX_S = 366 * 86_400
RESOURCES_MAX = 32
"""Resources that one option names."""
CONSTRAINT_CHARS_MAX = 1024
"""An expression over features."""
CHUNKS_MAX = 8
"""Kinds of chunks."""
NODE_LIST_CHARS_MAX = 65_536
"""A folded list of the nodes of a step over several cells."""
PARTS_MAX = 128
"""Parts of a job."""
GATEWAYS_MAX = 1024
"""Gateways of a job."""
GATEWAYS_PER_NODE_MAX = 64
"""Daemons of a job on one gateway."""
GATEWAY_PLUGIN_CHARS_MAX = 64
GATEWAY_ENV_MAX = 64
"""Variables of the daemons, besides the job's own."""
GATEWAY_ENV_CHARS_MAX = 256
PACK_MEMBERS_MAX = 128
"""Jobs of a pack."""
PACK_DELAY_MAX_S = 366 * 86_400
"""Delay of a job after the start of its pack, unless the site allows less (`delay_max_s`)."""
COUNT_MAX = 2**31 - 1
"""Tasks, cores, nodes and items of a resource."""
MEMORY_MAX_MIB = 2**40
TIME_LIMIT_MAX_S = 2**31 - 1
WARN_BEFORE_MAX_S = 65_535
MOMENT_MAX_US = 253_402_300_800_000_000
"""The end of the year 9999, UTC: begin times, fixed starts, deadlines."""
PRIORITY_MAX = 2**31 - 1
ARRAY_PARTS_MAX = 10_000
ARRAY_TASKS_MAX = 1_000_000
"""Unless the site allows less (`array_tasks_max`)."""
ARRAY_TASK_MAX = 2**31 - 2
"""The highest number of a task."""
ARRAY_STRIDED_MAX = 100_000
"""Tasks of an array that are named with a step (0-98:2): each of them is a range of its own."""
NICE_MAX = 1_000_000
SPECS_BYTES_MAX = 64 * 1024 * 1024
"""Arguments, node names and array ranges of all jobs of one call, as they lie in memory."""
COMMAND_BYTES_MAX = 2 * 1024 * 1024
"""A sealed command: a control frame also has to take the list of its nodes and what rides along."""
