"""The keys of slurm.conf, gres.conf and topology.conf, and what becomes of each: docs/reference/slurm-conf.md is made of it.

A table has a line for each key: `Key how note`. How is one of

- `SECTION.KEY:READER[:LOWEST-HIGHEST]`: the value is that of a key of the configuration;
- `yes`: code of its own converts it;
- `none`: it means nothing here, and the note says why;
- `only:A|B`: these values mean nothing here, any other one is left;
- `no`: nothing does that, and the note says what to do.

Invariant: a key that is in no table is reported.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

YES, NONE, NO, ONLY = "yes", "none", "no", "only"


class Row:
    """A key of a table: `how` it is treated, the values or the target of that, and the note."""

    __slots__ = ("detail", "how", "name", "note")

    def __init__(self, name: str, how: str, detail: str, note: str) -> None:
        self.name = name
        self.how = how
        self.detail = detail
        self.note = note

    @property
    def values(self) -> tuple[str, ...]:
        """The values without an effect, in lower letters."""
        return tuple(self.detail.lower().split("|"))


def _table(text: str) -> dict[str, Row]:
    """The rows by their names in lower letters."""
    found = {}
    for line in text.strip().splitlines():
        name, how, note = (*line.split(None, 2), "")[:3]
        kind, _, detail = how.partition(":")
        target = "" if kind in (YES, NONE, NO, ONLY) else how
        found[name.lower()] = Row(name, "to" if target else kind, target or detail, note)
    return found


_AGENTS = "of the agents that `eslurm up` starts; give others its option: esnoded"
_LOGS = "daemons log to standard error, for journald or a file"
_OWN = "eslurm has a protocol of its own"
_CONTAINED = "jobs are in control groups where a host has cgroup v2: agent.containment"
_CLOUD = "nodes are not switched on and off"
_LIMIT = "see docs/guide/accounts-and-limits.md for the limits there are"
_STORE = "accounting is in the job store: controller.store_url"
_MEMORY = "there is no bound for memory of single jobs but that of the nodes"

GENERAL: Mapping[str, Row] = _table(f"""
AccountingStorageBackupHost none {_STORE}
AccountingStorageEnforce yes each of its words is a row below
AccountingStorageExternalHost no export the jobs that have ended: esacct --json
AccountingStorageHost none {_STORE}
AccountingStorageLoc none {_STORE}
AccountingStorageParameters none {_STORE}
AccountingStoragePass none {_STORE}
AccountingStoragePort none {_STORE}
AccountingStorageTRES none all resources of a job are kept
AccountingStorageType none {_STORE}
AccountingStorageUser none {_STORE}
AccountingStoreFlags none a job's comment and command are kept, its script is not
AcctGatherEnergyType only:acct_gather_energy/none|none energy is not measured
AcctGatherFilesystemType only:acct_gather_filesystem/none|none traffic of file systems is not measured
AcctGatherInterconnectType only:acct_gather_interconnect/none|none traffic of networks is not measured
AcctGatherNodeFreq only:0 energy is not measured
AcctGatherProfileType only:acct_gather_profile/none|none there are no profiles of jobs
AllowSpecResourcesUsage only:0|no jobs do not get cores that are kept from them
AuthAltParameters no for tokens see [tokens] and docs/guide/tls.md
AuthAltTypes no for tokens see [tokens] and docs/guide/tls.md
AuthInfo none {_OWN}
AuthType none daemons have keys of their own: eslurm keys, eslurm join
BackupAddr yes as SlurmctldHost
BackupController yes as SlurmctldHost
BatchStartTimeout none the controller asks a node for what became of a launch
BcastExclude none sbcast copies single files
BcastParameters none sbcast copies at the pace of the slowest node
BurstBufferType no stage files in the job's script, or in a job before it
CheckpointType only:checkpoint/none|none use the checkpoints of the application
CliFilterPlugins no set defaults for users and groups: esctl defaults
ClusterName cluster.name:name
CommunicationParameters none {_OWN}
CompleteWait only:0 nodes are free one by one
ControlAddr yes as SlurmctldHost
ControlMachine yes as SlurmctldHost
CoreSpecPlugin none {_CONTAINED}
CpuFreqDef no set it in agent.prolog
CpuFreqGovernors no set it in agent.prolog
CredType none {_OWN}
CryptoType none {_OWN}
DataParserParameters none compat.slurm_version chooses the JSON
DebugFlags none {_LOGS}
DefCpuPerGPU no jobs ask for their cores: -c
DefMemPerCPU yes of partitions that give none
DefMemPerGPU no jobs ask for their memory: --mem
DefMemPerNode no jobs ask for their memory: --mem; partitions have memory_per_cpu_default_mib
DefaultStorageHost none {_STORE}
DefaultStorageLoc none {_STORE}
DefaultStoragePass none {_STORE}
DefaultStoragePort none {_STORE}
DefaultStorageType none {_STORE}
DefaultStorageUser none {_STORE}
DependencyParameters no jobs go on waiting for a dependency that can never be met
DisableRootJobs agent.allow_root_jobs:not
EioTimeout none {_OWN}
EnforcePartLimits only:all|any|yes a job that no partition ever lets in is refused when it is submitted
Epilog yes {_AGENTS} --epilog
EpilogMsgTime none reports of nodes are paced by the controller
EpilogSlurmctld phases.controller_epilog:path
FairShareDampeningFactor only:1|0 fair share compares levels in the tree of accounts
FastSchedule none nodes have what the configuration says
FederationParameters none see docs/guide/federation.md
FirstJobId policy.job_id_first:whole:1-1000000000
GetEnvTimeout none a job's environment is the one that it is submitted with
GpuFreqDef no set it in agent.prolog
GresTypes yes each is a [[resource]]
GroupUpdateForce none groups are asked of the system
GroupUpdateTime none groups are asked of the system
HashPlugin none {_OWN}
HealthCheckInterval no interval= of esnoded --health-check
HealthCheckNodeState no when= of esnoded --health-check
HealthCheckProgram no esnoded --health-check: its exit code and first line keep jobs away until it passes
HttpParserType none daemons have /metrics and /health: docs/guide/monitoring.md
InactiveLimit policy.inactive_limit_s:number:0-1000000000
InteractiveStepOptions none esalloc runs the shell where it is called
JobAcctGatherFrequency none nodes report when a step ends
JobAcctGatherParams none memory is that of the control group
JobAcctGatherType none {_CONTAINED}
JobCompHost no export the jobs that have ended: esacct --json
JobCompLoc no export the jobs that have ended: esacct --json
JobCompParams no export the jobs that have ended: esacct --json
JobCompPass no export the jobs that have ended: esacct --json
JobCompPassScript no export the jobs that have ended: esacct --json
JobCompPort no export the jobs that have ended: esacct --json
JobCompType only:jobcomp/none|none export the jobs that have ended: esacct --json
JobCompUser no export the jobs that have ended: esacct --json
JobContainerPlugin no mount directories of jobs in agent.prolog
JobContainerType only:job_container/none|none mount directories of jobs in agent.prolog
JobCredentialPrivateKey none {_OWN}
JobCredentialPublicCertificate none {_OWN}
JobFileAppend only:0|no jobs choose it themselves: --open-mode=append
JobRequeue only:1|yes jobs are requeued when a node fails; set another default: esctl defaults add site requeue=no
JobSubmitPlugins no set or force options of users and groups: esctl defaults
KeepAliveTime none {_OWN}
KillOnBadExit only:0|no tasks end each other with esrun -K, or SLURM_KILL_BAD_EXIT=1 in the environment
KillWait policy.kill_grace_s:number:0-1000000
LaunchParameters no set what programs need in agent.task_prolog
LaunchType none esrun and srun launch steps
Licenses yes each is a [[resource]] with a total
LogTimeFormat none {_LOGS}
MCSParameters no see [privacy] for what users see of each other
MCSPlugin only:mcs/none|none see [privacy] for what users see of each other
MailDomain no name it in mail.domain
MailProg no name a program like sendmail in mail.program, or a server in mail.smtp
MaxArraySize policy.array_tasks_max:most:1-1000000
MaxBatchRequeue no launches that fail are bounded by policy.launch_failures_max, requeues after lost nodes are not
MaxDBDMsgs none {_STORE}
MaxJobCount policy.pending_jobs_max:whole:1-2147483647
MaxJobId none ids go on
MaxMemPerCPU only:0|unlimited {_MEMORY}
MaxMemPerNode only:0|unlimited {_MEMORY}
MaxNodeCount none nodes are listed
MaxStepCount none the steps of a job are not limited
MaxTasksPerNode none the tasks of a step are limited by its request
MessageTimeout none {_OWN}
MetricsType none daemons have /metrics: docs/guide/monitoring.md
MinJobAge policy.finished_retention_s:number:1-1000000000
MpiDefault only:none|openmpi programs start their tasks themselves, or by esrun: there is no PMI
MpiParams no there is no PMI
NamespaceType only:namespace/none|none mount directories of jobs in agent.prolog
NodeFeaturesPlugins no features of nodes are those of the configuration
OverTimeLimit only:0 jobs end at their time limit; a running job may get more: policy.extension_percent
PluginDir none {_OWN}
PlugStackConfig no there are no SPANK plugins: use agent.prolog and agent.task_prolog
PowerParameters no {_CLOUD}
PowerPlugin only:power/none|none {_CLOUD}
PreemptExemptTime only:0|-1|00:00:00 give it to each QOS: esctl qos modify NAME preempt_exempt=
PreemptMode yes of partitions that give none
PreemptParameters no the preemptor chooses the jobs that delay fewest
PreemptType yes preempt/none, preempt/partition_prio, preempt/qos
PrEpParameters no use Prolog and Epilog
PrEpPlugins only:prep/script use Prolog and Epilog
PriorityCalcPeriod priority.recompute_s:span:1-1000000000
PriorityDecayHalfLife priority.half_life_s:span:0-2147483647
PriorityFavorSmall priority.favor_small:yes
PriorityFlags yes each of its words is a row below
PriorityMaxAge priority.age_max_s:span:1-2147483647
PriorityParameters no {_OWN}
PrioritySiteFactorParameters no use esctl update job ID priority=
PrioritySiteFactorPlugin no use esctl update job ID priority=
PriorityType yes priority/basic has no weights
PriorityUsageResetPeriod only:none usage decays by its half life, and is never put back
PriorityWeightAge priority.age:whole:0-2147483647
PriorityWeightAssoc only:0 shares and QOS are the only factors of accounts
PriorityWeightFairshare priority.fairshare:whole:0-2147483647
PriorityWeightJobSize priority.size:whole:0-2147483647
PriorityWeightPartition priority.partition:whole:0-2147483647
PriorityWeightQOS priority.qos:whole:0-2147483647
PriorityWeightTRES no billing is the weight of resources in fair share: priority.billing
PrivateData yes each of its words is a row below
ProctrackType none {_CONTAINED}
Prolog yes {_AGENTS} --prolog
PrologEpilogTimeout yes of both [agent] and [phases]
PrologFlags yes each of its words is a row below
PrologSlurmctld phases.controller_prolog:path
PrologTimeout yes as PrologEpilogTimeout
EpilogTimeout yes as PrologEpilogTimeout
PropagatePrioProcess only:0 tasks run at the node's usual priority
PropagateResourceLimits only:none limits of the submitting process are not carried over
PropagateResourceLimitsExcept no limits of the submitting process are not carried over
RebootProgram no reboot by a job or by hand: esctl drain
ReconfigFlags none a changed configuration applies as it says
RequeueExit no jobs ask for retries themselves: essubmit --retry-on
RequeueExitHold no jobs ask for retries themselves: essubmit --retry-on
ResumeFailProgram no {_CLOUD}
ResumeProgram no {_CLOUD}
ResumeRate no {_CLOUD}
ResumeTimeout no {_CLOUD}
ResvEpilog no use [phases]
ResvOverRun only:0 a reservation ends at its time
ResvProlog no use [phases]
ReturnToService only:1|2 a node that answers again takes jobs by itself
RoutePlugin none broadcasts go through satellites and trees: docs/guide/satellites-and-trees.md
SallocDefaultCommand none esalloc runs the user's shell
SbcastParameters none sbcast copies at the pace of the slowest node
SchedulerParameters yes each of its words is a row below
SchedulerPort none {_OWN}
SchedulerRootFilter none {_OWN}
SchedulerTimeSlice no jobs are not run in turns
SchedulerType yes sched/backfill is conservative, sched/builtin is fcfs
ScronParameters no there is no scrontab: submit from cron
SelectType only:select/cons_tres|select/cons_res jobs share nodes; -N and --exclusive take whole ones
SelectTypeParameters only:cr_core|cr_core_memory|cr_cpu|cr_cpu_memory|cr_socket|cr_socket_memory jobs get cores
SlurmSchedLogFile none {_LOGS}
SlurmSchedLogLevel none {_LOGS}
SlurmUser none the controller runs as the user that starts it
SlurmctldAddr none controllers are named one by one: docs/guide/hot-standby.md
SlurmctldDebug none {_LOGS}
SlurmctldHost yes controller.listen; the second and further ones stand by
SlurmctldLogFile none {_LOGS}
SlurmctldParameters no see docs/reference/configuration.md for what a controller has
SlurmctldPidFile none a daemon has no file with its process id
SlurmctldPlugstack no there are no plugins of controllers
SlurmctldPort none controllers listen at 7400, beside a Slurm: controller.listen
SlurmctldPrimaryOffProg no watch esctld with systemd, or the metrics
SlurmctldPrimaryOnProg no watch esctld with systemd, or the metrics
SlurmctldSyslogDebug none {_LOGS}
SlurmctldTimeout none a standby takes over within seconds: controller.lease_s
SlurmdDebug none {_LOGS}
SlurmdLogFile none {_LOGS}
SlurmdParameters no nodes have the cores that the configuration gives them
SlurmdPidFile none a daemon has no file with its process id
SlurmdPort none an agent's port is its option: esnoded --listen
SlurmdSpoolDir none an agent's directory is its option: esnoded --state-dir
SlurmdSyslogDebug none {_LOGS}
SlurmdTimeout yes policy.node_lost_after_s, with policy.orphan_timeout_s to match
SlurmdUser none agents run as the user that starts them
SrunEpilog no use agent.task_epilog
SrunPortRange none esrun chooses its ports
SrunProlog no use agent.task_prolog
StateSaveLocation none a controller's directory is its option: esctld --state-dir
SuspendExcNodes no {_CLOUD}
SuspendExcParts no {_CLOUD}
SuspendExcStates no {_CLOUD}
SuspendProgram no {_CLOUD}
SuspendRate no {_CLOUD}
SuspendTime only:infinite|-1 {_CLOUD}
SuspendTimeout no {_CLOUD}
SwitchParameters no networks are not configured for jobs
SwitchType only:switch/none|none networks are not configured for jobs
TCPTimeout none {_OWN}
TLSParameters none see [tls] and docs/guide/tls.md
TLSType none see [tls] and docs/guide/tls.md
TaskEpilog yes {_AGENTS} --task-epilog
TaskPlugin none tasks are bound by --cpu-bind; agent.bind_cores gives jobs cores of their own
TaskPluginParam no tasks are bound by --cpu-bind alone, or where jobs have cores of their own: agent.bind_cores
TaskProlog yes {_AGENTS} --task-prolog
TmpFS none room on disks of nodes is not counted
TopologyParam no jobs that fit under one switch are placed under one
TopologyPlugin only:topology/default|topology/flat|topology/tree|topology/none switches are in topology.conf
TrackWCKey none a job's wckey is kept
TreeWidth policy.relay_width:whole:2-4096
UnkillableStepProgram no watch the faults of nodes: docs/guide/monitoring.md
UnkillableStepTimeout none a node with processes that do not end has a fault
UrlParserType none daemons have /metrics and /health: docs/guide/monitoring.md
UsePAM only:0|no jobs have the limits of the agent's process
VSizeFactor only:0 memory is that of the control group
WaitTime only:0 esrun -W ends a step so many seconds after its first task
X11Parameters no there is no X11 forwarding
""")

WORDS: Mapping[str, Mapping[str, Row]] = {
    "AccountingStorageEnforce": _table("""
associations yes policy.accounts_enforced
limits yes policy.accounts_enforced; limits always hold
qos yes policy.accounts_enforced; a user without QOS may use none
safe yes policy.accounts_enforced; jobs that a limit stops wait for it
wckeys no a job's wckey is a note
nojobs no all jobs are kept
nosteps no all steps are kept
none none only registered users may submit where policy.accounts_enforced is true
0 none only registered users may submit where policy.accounts_enforced is true
1 yes policy.accounts_enforced
all yes policy.accounts_enforced
"""),
    "PriorityFlags": _table("""
ACCRUE_ALWAYS none a job grows older from its submission on
CALCULATE_RUNNING none the priority of running jobs counts for nothing
DEPTH_OBLIVIOUS no fair share compares levels in the tree of accounts
FAIR_TREE none fair share compares levels in the tree of accounts
INCR_ONLY no priorities rise and fall
MAX_TRES no billing adds up all resources
NO_FAIR_TREE no fair share compares levels in the tree of accounts
NO_NORMAL_ALL no factors lie between 0 and 1
NO_NORMAL_ASSOC no factors lie between 0 and 1
NO_NORMAL_PART no factors lie between 0 and 1
NO_NORMAL_QOS no factors lie between 0 and 1
NO_NORMAL_TRES no factors lie between 0 and 1
SMALL_RELATIVE_TO_TIME no size is the share of nodes or cores
"""),
    "PrivateData": _table("""
accounts no accounts are seen by all users
cloud none nodes are not switched on and off
events none users see no events of nodes but their states
jobs yes privacy.private
nodes no nodes are seen by all users
partitions no partitions are seen by all users
reservations yes privacy.private
usage yes privacy.private
users yes privacy.private
none none nothing is private
"""),
    "PrologFlags": _table(f"""
Alloc none a prolog always runs before anything of its job
Contain none {_CONTAINED}
DeferBatch none a prolog always runs before anything of its job
ForceRequeueOnFail none a job whose prolog fails starts elsewhere
NoHold no a prolog always runs before anything of its job
RunInJob none {_CONTAINED}
Serial no phases of jobs on a node run side by side
X11 no there is no X11 forwarding
"""),
    "SchedulerParameters": _table("""
assoc_limit_stop none jobs that a limit stops let others start, and keep their plan
batch_sched_delay none the planner runs as soon as something changes
bf_busy_nodes none the planner takes cheap nodes first: weight
bf_continue none the planner sees all jobs
bf_hetjob_immediate none parts of a job are planned together
bf_hetjob_prio no parts of a job are planned together
bf_interval none the planner runs as soon as something changes
bf_job_part_count_reserve none scheduler = "easy" plans only the first job
bf_licenses none licences are planned like nodes
bf_max_job_array_resv none the planner sees all jobs
bf_max_job_assoc none the planner sees all jobs
bf_max_job_part none the planner sees all jobs
bf_max_job_start none the planner sees all jobs
bf_max_job_test none the planner sees all jobs
bf_max_job_user none the planner sees all jobs
bf_max_job_user_part none the planner sees all jobs
bf_max_time none the planner sees all jobs
bf_min_age_reserve no every job has a planned start
bf_min_prio_reserve no every job has a planned start
bf_node_space_size none the planner sees all jobs
bf_one_resv_per_job none a job has one planned start
bf_resolution none starts are planned to the second
bf_running_job_reserve none running jobs keep their nodes
bf_topopt_enable none jobs that fit under one switch are placed under one
bf_topopt_iterations none jobs that fit under one switch are placed under one
bf_window none there is no bound to the future
bf_window_linear none there is no bound to the future
bf_yield_interval none planning is sliced, and calls go on meanwhile
bf_yield_rpc_cnt none planning is sliced, and calls go on meanwhile
bf_yield_sleep none planning is sliced, and calls go on meanwhile
build_queue_timeout none planning is sliced, and calls go on meanwhile
correspond_after_task_cnt none each task of an array is a job
default_gbytes no numbers of memory are MiB: --mem 4G
default_queue_depth none the planner sees all jobs
defer none submissions are decided without planning
defer_batch none submissions are decided without planning
delay_boot no nodes are not switched on and off
disable_hetjob_steps no steps may span parts of a job
disable_job_shrink no a running job may give back nodes
enable_hetjob_steps none steps may span parts of a job
enable_job_state_cache none views are answered from memory
enable_user_top no users step back with --nice, and never jump ahead
extra_constraints no use features: --constraint
hetjob_prio no parts of a job are planned together
Ignore_NUMA none nodes have cores, not sockets
ignore_prefer_validation none features that no node has let a job wait
max_array_tasks yes policy.array_tasks_max
max_depend_depth none dependencies have no bound of depth
max_rpc_cnt none planning is sliced, and calls go on meanwhile
max_sched_time none planning is sliced, and calls go on meanwhile
max_script_size yes policy.script_bytes_max
max_submit_line_size none a job's line has a bound of its own
max_switch_wait no there is no --switches
nohold_on_prolog_fail none a job whose prolog fails starts elsewhere
no_backup_scheduling none a standby leads wholly or not at all
no_env_cache none a job's environment is the one that it is submitted with
pack_serial_at_end no give nodes a weight
partition_job_depth none the planner sees all jobs
permit_job_expansion none a running job may ask for more nodes
preempt_reorder_count none the preemptor chooses the jobs that delay fewest
preempt_send_user_signal none a preempted job is told by its signal: docs/guide/time-limits-and-preemption.md
preempt_strict_order no the preemptor chooses the jobs that delay fewest
preempt_youngest_first none the preemptor chooses the jobs that delay fewest
reduce_completing_frag none nodes are free one by one
requeue_delay policy.requeue_delay_s:number:0-1000000000
requeue_setup_env_fail none a job's environment is the one that it is submitted with
salloc_wait_nodes none an allocation begins when its nodes have it
sbatch_wait_nodes none a script begins when its nodes have it
sched_interval none the planner runs as soon as something changes
sched_max_job_start none the planner sees all jobs
sched_min_interval none the planner runs as soon as something changes
spec_cores_first none cores that are kept from jobs are not numbered
step_retry_count none a step waits for cores in the order of requests
step_retry_time none a step waits for cores in the order of requests
time_min_as_soft_limit no jobs have one time limit
whole_hetjob none parts of a job are cancelled and held together
"""),
}
"""Keys whose values are lists of words, each with a table of its own."""

NODE: Mapping[str, Row] = _table("""
NodeName yes [[nodes]] names
NodeAddr none nodes are reached by their names; an agent says where it listens: esnoded --listen
NodeHostname none several agents may run on a host: esnoded --nodes
BcastAddr none nodes are reached by their names
Boards yes part of cores
CoreSpecCount yes left out of cores
CoresPerSocket yes part of cores
CPUs yes cores, where sockets and cores are not given
CpuBind only:none tasks are not bound to cores
CpuSpecList yes left out of cores
Feature yes features
Features yes features
Gres yes gres
MemSpecLimit yes left out of memory_mib
Parameters no nodes have the cores that the configuration gives them
Port none an agent's port is its option: esnoded --listen
Procs yes as CPUs
RealMemory yes memory_mib
Reason none a reason goes with a node's state
RestrictedCoresPerGPU yes cores_for_devices
Sockets yes part of cores
SocketsPerBoard yes part of cores
State yes DOWN, DRAIN and FAIL are reported; nodes that are FUTURE or CLOUD are left out
ThreadsPerCore yes jobs get cores
TmpDisk none room on disks of nodes is not counted
Topology no see [[switch]]
Weight yes weight; jobs take cheap nodes first
""")

PARTITION: Mapping[str, Row] = _table(f"""
PartitionName yes name
AllocNodes only:all jobs may be submitted from each login host
AllowAccounts only:all keep the nodes for them: esctl pool add NAME items=all nodes=NODES access='account=A,B'
AllowGroups only:all keep the nodes for them: esctl pool add NAME items=all nodes=NODES access='group=A,B'
AllowQos only:all keep the nodes for them: esctl pool add NAME items=all nodes=NODES access='qos=A,B'
Alternate no users choose another partition
CpuBind only:none tasks are not bound to cores
Default yes default
DefaultTime yes time_limit_default_s
DefCpuPerGPU no jobs ask for their cores: -c
DefMemPerCPU yes memory_per_cpu_default_mib
DefMemPerGPU no jobs ask for their memory: --mem
DefMemPerNode no jobs ask for their memory: --mem
DenyAccounts no give each user the accounts it may use
DenyQos no give each user the QOS it may use
DisableRootJobs only:no it is one for all partitions: agent.allow_root_jobs
ExclusiveTopo only:no whole switches are not kept for a job
ExclusiveUser only:no jobs of several users may share a node
GraceTime no it is that of a QOS, or policy.kill_grace_s: esctl qos modify NAME preempt_grace=
Hidden only:no partitions are seen by all users
LLN only:no cheap nodes are filled first
MaxCPUsPerNode only:unlimited the cores of a node are not bounded by partition
MaxCPUsPerSocket only:unlimited nodes have cores, not sockets
MaxMemPerCPU only:0|unlimited {_MEMORY}
MaxMemPerNode only:0|unlimited {_MEMORY}
MaxNodes only:unlimited the nodes of a job are not bounded by partition
MaxTime yes time_limit_max_s
MinNodes only:0|1 the nodes of a job are not bounded by partition
Nodes yes nodes
OverSubscribe only:no cores belong to one job at a time; jobs ask for whole nodes: --exclusive
OverTimeLimit only:0 jobs end at their time limit
PowerDownOnIdle only:no {_CLOUD}
PreemptMode yes preempt_mode
Priority yes both PriorityTier and PriorityJobFactor
PriorityJobFactor yes priority
PriorityTier yes tier
QOS no {_LIMIT}: esctl limit add NAME partition=PARTITION
ReqResv only:no reservations keep their nodes for those that they name
ResumeTimeout no {_CLOUD}
RootOnly only:no only operators change what is not theirs
SelectTypeParameters no jobs get cores
Shared only:no as OverSubscribe
State yes up; DRAIN and INACTIVE are DOWN
SuspendTime only:infinite|-1 {_CLOUD}
SuspendTimeout no {_CLOUD}
Topology no see [[switch]]
TRESBillingWeights yes priority.billing, where it is the same in all partitions
""")

OTHER: Mapping[str, Row] = _table("""
DownNodes no drain them when the cluster is up: esctl drain
FrontendName no there are no front ends
NodeSet yes a name for nodes in Nodes= of partitions
""")
"""Keys that begin a line with keys of its own."""

GRES: Mapping[str, Row] = _table("""
AutoDetect no nodes have what [[nodes]] gres says
Name yes [[resource]]
NodeName yes nodes to which the line applies
Type yes the type of a resource that slurm.conf counts
Count yes where slurm.conf does not count
File yes [[resource]] devices: jobs get numbered items
Cores none cores are not bound to devices
CPUs none cores are not bound to devices
Flags no resources of nodes are counted
Links none devices are not bound to each other
MultipleFiles yes as File
""")

TOPOLOGY: Mapping[str, Row] = _table("""
SwitchName yes [[switch]] name
Nodes yes nodes
Switches yes switches
LinkSpeed none links are not weighed
BlockName no a block is a [[switch]]: write its nodes there
BlockSizes no jobs that fit under one switch are placed under one
""")
