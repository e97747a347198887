"""The options of squeue."""

from __future__ import annotations

from eslurm.compat.slurm.getopt import table

ROWS = table("""
accounts A = yes jobs of these accounts
all a - none there are no hidden partitions for users
array r - yes one line for each waiting task of an array
array-unique . - no a job in two partitions has one line here
autocomplete . = no shells complete without it
cluster . = as:clusters
clusters M = yes ask these clusters: this one, or cells of its federation
expand-patterns . - none file names are shown with their letters replaced
federation . - no name the cells with -M
format o = yes columns by their letters
Format O = yes columns by their names
help . - yes show this text
helpFormat . - yes list the columns of --Format
hide . - none there are no hidden partitions for users
iterate i = yes show again every so many seconds
jobs j ? yes these jobs
json . ? yes print JSON
licenses L = yes jobs that ask for these licences
local . - none only this cluster is asked anyway
long l - yes more columns
me . - yes the caller's jobs
name n = yes jobs of these names
node . = as:nodelist
nodelist w = yes jobs on these nodes
nodes . = as:nodelist
noconvert . - yes amounts of memory in MiB
noheader h - yes no header
notme . - yes jobs of all others
only-job-state . - yes a job that is unknown is no error (not in 22.05)
partition . = as:partitions
partitions p = yes jobs in these partitions
priority P - yes a pending job has one line for each of its partitions
qos q = yes jobs of these classes of service
reservation R = yes jobs in this reservation
sibling . - no name the cells with -M
sort S = yes order by these letters
start . - yes when waiting jobs are expected to start
states t = yes jobs in these states
steps s ? yes running steps, in the usual columns
usage . - yes show this text
user u = yes jobs of these users
users . = as:user
verbose v - none
version V - yes show the version
yaml . ? yes print YAML
""")
