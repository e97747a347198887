"""The options of the commands that show accounts, shares, priorities and efficiency."""

from __future__ import annotations

from eslurm.compat.slurm.getopt import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SSHARE = table("""
accounts A = yes these accounts
all a - yes users of all accounts
autocomplete . = no shells complete without it
cluster . = as:clusters
clusters M = no ask the cell: esctl --cell CELL shares
format o = yes columns by their names
help . - yes show this text
helpformat e - yes list the columns
json . ? no use esctl shares --json
long l - yes more columns
noheader n - yes no header
parsable p - yes columns end with |
parsable2 P - yes columns are separated by |
partition m - no shares are not by partitions
usage . - yes show this text
Users U - yes no lines for accounts
users u = yes these users
verbose v - none
version V - yes show the version
yaml . ? no use esctl shares --json
""")
SPRIO = table("""
autocomplete . = no shells complete without it
cluster . = as:clusters
clusters M = no ask the cell: esctl --cell CELL priority
federation . - no name the cells with esctl --cell
format o = yes columns by their letters
help . - yes show this text
helpformat . - no see docs/reference/slurm-commands.md
jobs j ? yes these jobs
local . - none only this cluster is asked anyway
long l - yes more columns
noheader h - yes no header
norm n - no factors are shown in points
partition p = yes jobs in these partitions
sib . - no name the cells with esctl --cell
sort S = no lines are in the order of priorities
usage . - yes show this text
user u = yes jobs of these users
users . = as:user
verbose v - none
version V - yes show the version
weights w - no see the configuration: priority
""")
SDIAG = table("""
all a - yes all statistics, as without it
autocomplete . = no shells complete without it
cluster . = as:clusters
clusters M = yes of this cluster: this one, or a cell of its federation
help h - yes show this text
json . ? yes print JSON (not in 22.05)
no-trunc . - none no line is cut
reset r - no counts begin when a controller begins to lead, and are never put back
sort-by-id i - yes rows of calls by their numbers
sort-by-time t - yes rows of calls by their whole time
sort-by-time2 T - yes rows of calls by their average time
usage . - yes show this text
version V - yes show the version
yaml . ? yes print YAML (not in 22.05)
""")
SSTAT = table("""
allsteps a - yes all steps of jobs that are named without one, not only the first
autocomplete . = no shells complete without it
delimiter . = yes what separates columns with -p and -P
fields . = as:format
format o = yes columns by their names
help h - yes show this text
helpformat e - yes list the columns
jobs j = yes these jobs or steps: 17, 17.0, 17.batch
noconvert . - yes amounts in bytes
noheader n - yes no header
parsable p - yes columns end with |
parsable2 P - yes columns are separated by |
pidformat i - yes the processes of each node
usage . - yes show this text
verbose v - none
version V - yes show the version
""")
SEFF = table("""
d . - none
h . - yes show this text
help . - yes show this text
v . - yes show the version
version V - yes show the version
""")
STRIGGER = table("""
autocomplete . = no shells complete without it
backup_slurmctld_assumed_control B - no no program is started by controllers: see metrics and alerts
backup_slurmctld_failed b - no no program is started by controllers: see metrics and alerts
backup_slurmctld_resumed_operation . - no no program is started by controllers: see metrics and alerts
burst_buffer . - no there are no burst buffers
clear . - yes cancel a trigger: with --id, --jobid or --user
cluster . = as:clusters
clusters M = no name a job of this cluster
down d - no no program is started by states of nodes: see metrics and alerts
drained D - no no program is started by states of nodes: see metrics and alerts
draining . - no no program is started by states of nodes: see metrics and alerts
fail F - no no program is started by states of nodes: see metrics and alerts
fini f - yes when the job has ended
flags . = no a trigger is used once
get . - yes list triggers
help . - yes show this text
id i = yes the trigger of this number
idle I - no no program is started by states of nodes: see metrics and alerts
jobid j = yes of this job
node n ? no no program is started by states of nodes: see metrics and alerts
noheader h - yes no header
offset o = only:0 a program starts when the job has ended
primary_slurmctld_failure . - no no program is started by controllers: see metrics and alerts
program p = yes the program, with the job's number as its argument
quiet Q - yes say nothing of triggers that are not there
reconfig r - no no program is started by controllers: see metrics and alerts
resume R - no no program is started by states of nodes: see metrics and alerts
set . - yes set a trigger, which waits as a job of the caller
time t - no use sbatch --signal, which tells the job itself
up u - no no program is started by states of nodes: see metrics and alerts
usage . - yes show this text
user . = yes of this user
verbose v - none
version V - yes show the version
""")
SCRONTAB = table("""
autocomplete . = no shells complete without it
e . - yes edit the crontab
h . - yes show this text
help . - yes show this text
l . - yes show the crontab
r . - yes remove the crontab
u . = yes of this user: with -l and -r, for operators
usage . - yes show this text
v . - none
version V - yes show the version
""")
SACCTMGR = table("""
associations s - yes with users and accounts: a line for each of their associations
help h - yes show this text
immediate i - yes make changes without a question
json . ? no use esctl user show --json
noheader n - yes no header
oneliner o - none
parsable p - yes columns end with |
parsable2 P - yes columns are separated by |
quiet Q - none
readonly r - yes refuse changes
usage . - yes show this text
verbose v - none
version V - yes show the version
yaml . ? no use esctl user show --json
""")
SBCAST = table("""
compress C ? none what is sent is not compressed
exclude . = no a copy goes to all nodes
fanout F = none each node gets it from this command
force f - yes replace a file that exists
help h - yes show this text
jobid j = yes the job, if not the surrounding one
preserve p - yes keep the time of the last change
send-libs . ? no send them one by one
size s = none blocks have the size that a node takes
timeout t = none a node that is lost is known of
treewidth . = none each node gets it from this command
usage . - yes show this text
verbose v - none
version V - yes show the version
""")
SATTACH = table("""
autocomplete . = no shells complete without it
debugger-test . - no debuggers are not told where tasks run
error-filter . = yes error output of this task only; - for all
help h - yes show this text
input-filter . = no the input of tasks is that of the step's own command
label l - yes each line begins with the number of its task
layout . - yes print nodes and tasks, and attach to nothing
output-filter . = yes output of this task only; - for all
pty . - no a terminal belongs to the step's own command
quiet Q - yes say nothing of tasks that fail
usage u - yes show this text
verbose v - none
version V - yes show the version
""")
SHARE_WIDTHS: Mapping[str, int] = {
    "Account": -20, "Cluster": 10, "EffectvUsage": 13, "FairShare": 10, "GrpTRESMins": 30, "GrpTRESRaw": 30, "ID": 6,
    "LevelFS": 10, "NormShares": 11, "NormUsage": 11, "Partition": 12, "RawShares": 10, "RawUsage": 11, "TRESRunMins": 30,
    "User": 10,
}  # fmt: skip
SHARE_DEFAULT = "Account,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare"
SHARE_LONG = "Account,User,RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare,LevelFS,GrpTRESMins,TRESRunMins"
PRIORITY_DEFAULT = "%.15i %9r %.10Y %.10S %.10A %.10F %.10J %.10P %.10Q"
PRIORITY_LONG = "%.15i %9r %.8u %.8o %.10Y %.10S %.10A %.10B %.10F %.10J %.10P %.10n %.10Q %.11N %.20T"
