"""The options of sinfo."""

from __future__ import annotations

from eslurm.compat.slurm.getopt import table

ROWS = table("""
all a - none there are no hidden partitions for users
autocomplete . = no shells complete without it
cluster . = as:clusters
clusters M = yes ask these clusters: this one, or cells of its federation
dead d - yes nodes that do not respond
exact e - yes nodes of different size on lines of their own
federation . - no name the cells with -M
Format O = yes columns by their names
format o = yes columns by their letters
future F - none there are no future nodes
help . - yes show this text
helpFormat . - yes list the columns of --Format
hide . - none there are no hidden partitions for users
iterate i = yes show again every so many seconds
json . ? yes print JSON
list-reasons R - yes why nodes are out of service
local . - none only this cluster is asked anyway
long l - yes more columns
Node N - yes one line for each node and partition
noconvert . - none sizes of nodes are shown in MiB
nodes n = yes these nodes
noheader h - yes no header
partition p = yes these partitions
reservation T - no see esctl show reservation
responding r - yes nodes that respond
sort S = yes order by these letters
states t = yes nodes in these states
summarize s - yes one line for each partition
usage . - yes show this text
verbose v - none
version V - yes show the version
yaml . ? yes print YAML
""")
