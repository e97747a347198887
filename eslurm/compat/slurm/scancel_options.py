"""The options of scancel."""

from __future__ import annotations

from eslurm.compat.slurm.getopt import table

ROWS = table("""
account A = yes jobs of this account
admin-comment . = no no comment of an administrator is kept
autocomplete . = no shells complete without it
batch b - yes signal the batch script alone
cluster . = as:clusters
clusters M = yes in this cluster: this one, or a cell of its federation
cron c - yes end jobs of scrontab, too: their lines are disabled
ctld . - none the controller sends all signals
full f - yes signal the batch script, too, and what it has started
help . - yes show this text
hurry H - none there are no burst buffers
interactive i - no there is no dialogue
jobname . = as:name
me . - yes the caller's jobs
name n = yes jobs of this name
nodelist w = yes jobs on these nodes
partition p = yes jobs in this partition
qos q = yes jobs of this class of service
quiet Q - yes say nothing of jobs that have ended
reservation R = yes jobs in this reservation
sibling . = no name the cells with -M
signal s = yes send this signal instead of ending the job
sluid . = no jobs have ids
state t = yes jobs in this state: pending, running, suspended
usage . - yes show this text
user u = yes jobs of this user
users . = as:user
verbose v - yes say what is done
version V - yes show the version
wckey . = yes jobs with this word
""")
FILTERS = (
    *("account", "me", "name", "nodelist", "partition", "qos", "reservation", "state", "user", "wckey"),
)
