"""The options and commands of scontrol."""

from __future__ import annotations

from eslurm.compat.slurm.getopt import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

ROWS = table("""
all a - none there are no hidden partitions for users
autocomplete . = no shells complete without it
cluster . = as:clusters
clusters M = yes in this cluster: this one, or a cell of its federation
details d - yes more lines of a job
federation . - no name the cells with -M
future F - none there are no future nodes
help h - yes show this text
hide . - none there are no hidden partitions for users
json . ? yes print JSON (show job, node, partition, ping)
local . - none only this cluster is asked anyway
oneliner o - yes one line for each record
quiet Q - none
sibling . - no name the cells with -M
uid u = no jobs are changed as the calling user
usage . - yes show this text
verbose v - none
version V - yes show the version
yaml . ? yes print YAML (as --json)
""")

COMMANDS: Mapping[str, str] = {
    "show": "yes job, node, partition, reservation, licenses, config, hostnames, hostlist, hostlistsorted, topology, "
    "daemons, step",
    "ping": "yes the controllers",
    "version": "yes the version",
    "hold": "yes jobs that wait, by their ids",
    "uhold": "yes as hold",
    "release": "yes jobs that are held",
    "requeue": "yes jobs, to start anew",
    "requeuehold": "yes jobs, to wait on hold",
    "top": "yes jobs before the other waiting ones of their user, which step back",
    "suspend": "yes running jobs",
    "resume": "yes suspended jobs",
    "update": "yes JobId=, NodeName= with State= and Reason=, PartitionName= with State=, ReservationName=",
    "create": "yes reservation; nodes and partitions: edit the file, then reconfigure",
    "delete": "yes ReservationName=; nodes and partitions: edit the file, then reconfigure",
    "token": "yes a token, with lifespan= and username=",  # nosec B105 # a note, no password
    "takeover": "yes let a standby lead",
    "listjobs": "yes jobs on a node",
    "liststeps": "yes steps that run",
    "listpids": "yes processes of steps on this node, or on the one that is named",
    "write": "yes batch_script: a job's script, to its user and operators",
    "reconfigure": "yes the controller reads its file again; keys that need a restart are named",
    "wait_job": "yes a job's nodes are ready when it runs",
    "help": "yes the commands",
    "abort": "no stop the daemon",
    "cancel_reboot": "no nodes are never rebooted",
    "errnumstr": "no errors have no numbers",
    "fsdampeningfactor": "no it is a key of the configuration",
    "getaddrs": "no see esctl show node",
    "notify": "no jobs are sent no messages",
    "pidinfo": "no processes are not listed",
    "power": "no nodes are not switched off",
    "reboot": "no nodes are never rebooted",
    "schedloglevel": "no see the configuration",
    "setdebug": "no see the configuration",
    "setdebugflags": "no see the configuration",
    "shutdown": "no stop the daemons",
}
"""The commands, with whether they are supported, and what they do or what to use instead."""
