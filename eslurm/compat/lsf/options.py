"""The options of `bsub`, `bjobs` and `bkill`, and LSF's way to read them.

A word is an option by its whole name (`-oo`, `-cwd`), else by its first letter with the value in the same word (`-n4`,
`-R"..."`). Letters are not joined. A table is one of `compat.slurm.getopt`; other options are refused.
"""

from __future__ import annotations

from eslurm.compat.slurm.getopt import FLAG, Options, UsageProblem, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from eslurm.compat.slurm.getopt import Row

BSUB = table("""
J . = yes name of the job; of an array: name[1-10:2]%3
n . = yes number of tasks
R . = yes resources: select[], rusage[], span[]; several are joined
W . = yes time limit: minutes, or hours:minutes
M . = yes most memory of the job on a node; KB, or LSF_UNIT_FOR_LIMITS
gpu . = yes GPUs on each node: num=2, or num=2/task; - is one
q . = yes queue: a partition
P . = yes project: an account
o . = yes file of standard output, to append to; %J job, %I task of an array
oo . = yes the same, overwritten
e . = yes file of standard error, to append to
eo . = yes the same, overwritten
i . = yes file of standard input
w . = yes wait for jobs: done(1) && ended(2), or with ||; jobs by id or name
H . - yes hold the job
b . = yes start not before [[[YEAR:]MONTH:]DAY:]HOUR:MINUTE
K . - yes wait for the job's end
cwd . = yes run in this directory
x . - yes share its nodes with no other job
m . = yes run on this one host
r . - yes start it again when a node is lost
rn . - yes never start it again
env . = yes variables of the job: all, none, NAME, NAME=VALUE, between commas
jd . = yes a note kept with the job
U . = yes run inside this reservation
u . = yes addresses or users that get its mail
N . - yes mail when it ends
Ne . - yes mail when it fails
B . - yes mail when it begins
h . - yes show this text
V . - yes show the version
I . - no use esalloc, or esrun --pty bash
Ip . - no use esrun --pty bash
Is . - no use esrun --pty bash
a . = no use module or esrun --mpi in the script
app . = no there are no application profiles
c . = no use -W
C . = no use ulimit -c before bsub
D . = no use ulimit -d before bsub
E . = no do it at the beginning of the script
Ep . = no do it at the end of the script
f . = no copy files in the script
F . = no use ulimit -f before bsub
g . = no there are no job groups
G . = no use -P
k . = no use the checkpoints of the application
L . = no name a shell in the script's first line
p . = no use -n
Q . = no use essubmit --retry-on
s . = no use essubmit --signal
S . = no use ulimit -s before bsub
sla . = no there are no service classes
sp . = no use essubmit --priority
T . = no threads are not counted
v . = no use ulimit -v before bsub
wa . = no use essubmit --signal
wt . = no use essubmit --signal
XF . - no there is no X11 forwarding
Zs . - none the script is kept with the job
""")
BJOBS = table("""
a . - yes also jobs that have ended, as far as the controller has them
d . - yes jobs that have ended
p . - yes jobs that wait
r . - yes jobs that run
s . - yes jobs that are suspended
u . = yes jobs of this user; all: of all users
q . = yes jobs in this queue
J . = yes jobs of this name
w . - yes nothing is cut
noheader . - yes no line of heads
o . = yes fields, and delimiter='X': 'jobid stat exec_host:20'
json . - yes with -o: JSON
h . - yes show this text
V . - yes show the version
l . - no use esctl show job ID
A . - no use esqueue
L . - no use essubmit --help for what a job may ask for
P . = no use esqueue
W . - no use -o
X . - none hosts are shown one by one
UF . - no use -o
""")
BKILL = table("""
J . = yes jobs of this name
u . = yes jobs of this user; all: of all users
q . = yes jobs in this queue
s . = yes send this signal
r . - none what is left of a job on a lost node is cleaned up in any case
b . - none all jobs go in one call
h . - yes show this text
V . - yes show the version
l . - no use kill -l
g . = no there are no job groups
""")


def parse(rows: Sequence[Row], words: Sequence[str], where: str = "") -> Options:
    """The options before the first other word, and the rest. Raises UsageProblem."""
    by_name = {row.long: row for row in rows}
    found = Options()
    at = 0
    while at < len(words):
        word = words[at]
        if not word.startswith("-") or word == "-":
            break
        at += 1
        if word == "--":
            break
        row, value = by_name.get(word[1:]), ""
        if (
            row is None
            and len(word) > 2
            and (first := by_name.get(word[1])) is not None
            and first.kind != FLAG
        ):
            row, value = first, word[2:]
        elif row is not None and row.kind != FLAG:
            if at == len(words):
                raise UsageProblem(f"{where}{word}: option requires an argument")
            value = words[at]
            at += 1
        if row is None:
            raise UsageProblem(f"{where}illegal option {word}")
        found.add(row, value, f"{where}-{row.long}")
    found.rest = list(words[at:])
    return found
