"""The options of `qsub`, `qstat` and `qdel`. A table is one of `compat.slurm.getopt`; other options are refused."""

from __future__ import annotations

from eslurm.compat.slurm.getopt import table

QSUB = table("""
N . = yes name of the job
q . = yes queue: a partition
A . = yes account
P . = yes project: an account
l . = yes resources: select, place, walltime; ncpus, mem, ngpus of one chunk; nodes=N:ppn=M
o . = yes file of standard output
e . = yes file of standard error
j . = yes oe or eo: both outputs in one file; n: in two
J . = yes an array: FIRST-LAST[:STEP][%N]
v . = yes variables of the job: NAME or NAME=VALUE, between commas
V . - yes all variables of this process
W . = yes depend=, umask=, block=true
h . - yes hold the job
a . = yes start not before hhmm[.SS] or [CC]YYMMDDhhmm[.SS]
r . = yes y or n: start it again when a node is lost
S . = yes shell that reads the script
z . - yes print no job id
f . - none qsub always ends at once
M . = yes addresses or users that get its mail, between commas
m . = yes mail: a when it fails, b when it begins, e when it ends; n: none
c . = only:n|u use the checkpoints of the application
k . = only:n files are written where -o and -e say
p . = only:0 use -q, or essubmit --nice
C . = no option lines begin with #PBS
G . - no use esalloc --pty
I . - no use esalloc, or esrun --pty bash
R . = no files of a job stay
u . = no a job is its owner's
X . - no there is no X11 forwarding
help . - yes show this text
version . - yes show the version
""")
QSTAT = table("""
a . - yes wide lines: queues, nodes, cores, memory and times
u . = yes jobs of these users, in wide lines
x . - yes also jobs that have ended
f . - yes all of these jobs, a line for each attribute
B . - no use esinfo
Q . - no use esinfo
q . - no use esinfo
n . - no use esqueue -o '%i %N'
t . - yes also the tasks of arrays
J . - no use esqueue
H . - no use qstat -x
w . - no lines are as wide as PBS's
help . - yes show this text
version . - yes show the version
""")
QDEL = table("""
x . - none what is known of ended jobs stays
W . = no a job ends after the site's grace
help . - yes show this text
version . - yes show the version
""")
