"""The options of sacct."""

from __future__ import annotations

from eslurm.compat.slurm.getopt import table

ROWS = table("""
accounts A = yes jobs of these accounts
allclusters L - yes ask all cells of the federation
allocations X - yes no lines for steps
allusers a - yes jobs of all users
array . - yes one line for each waiting task of an array
associations x = no accounting is not by associations
autocomplete . = no shells complete without it
batch-script B - yes the scripts of the jobs of -j, to their user and operators
brief b - yes job, state, exit code
cluster . = as:clusters
clusters M = yes ask these clusters: this one, or cells of its federation
completion c - no there is no job completion log
constraints C = yes jobs with these features
delimiter . = yes what separates columns with -p and -P
duplicates D - yes earlier runs of jobs that began anew, too
endtime E = yes jobs from before this
env-vars . - no environments are not given out
expand-patterns . - none file names are shown with their letters replaced
federation . - no name the cells with -M
fields . = as:format
file f = no there is no job completion log
flags F = no the kind of scheduling is not kept
format o = yes columns by their names
gid g = no use -u
group . = as:gid
help h - yes show this text
help-fields . - as:helpformat
helpformat e - yes list the columns
jobs j = yes these jobs
json . ? yes print JSON
local . - none only this cluster is asked anyway
long l - yes all columns about usage
name . = yes jobs of these names
ncpus I = yes jobs with so many cores: MIN-MAX
nnodes i = yes jobs with so many nodes: MIN-MAX
nodelist N = yes jobs on these nodes
noconvert . - yes amounts in the unit that they are kept in
noheader n - yes no header
parsable p - yes columns end with |
parsable2 P - yes columns are separated by |
partition r = yes jobs in these partitions
qos q = yes jobs of these classes of service
reason R = no reasons of waiting are not kept
starttime S = yes jobs that had not ended by this time
state s = yes jobs in these states
timelimit-max K = no use -o timelimit
timelimit-min k = no use -o timelimit
truncate T - yes show times within the chosen ones
uid . = as:user
units . = yes amounts in K, M, G, T or P
usage U - yes show this text
use-local-uid . - none users are named by this host
user u = yes jobs of these users
verbose v - none
version V - yes show the version
wckeys W = yes jobs with these words
whole-hetjob . ? none all parts of a job are shown
yaml . ? yes print YAML
""")
DEFAULT = "jobid,jobname,partition,account,alloccpus,state,exitcode"
BRIEF = "jobid,state,exitcode"
LONG = (
    "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,averss,"
    "maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,alloccpus,elapsed,state,exitcode,"
    "avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,maxdiskread,maxdiskreadnode,maxdiskreadtask,"
    "avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,reqtres,alloctres,tresusageinave,tresusageinmax,"
    "tresusageinmaxn,tresusageinmaxt,tresusageinmin,tresusageinminn,tresusageinmint,tresusageintot,tresusageoutmax,"
    "tresusageoutmaxn,tresusageoutmaxt,tresusageoutave,tresusageouttot"
)
