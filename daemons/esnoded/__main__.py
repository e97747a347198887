"""The command line of `esnoded`. It makes sure of the step supervisor before anything heavy is imported."""

from __future__ import annotations

import argparse
import logging
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from eslurm.compat.errors import OptionError
from eslurm.compat.hostlist import expand
from eslurm.links.trust_options import add_trust_options, read_member
from eslurm.security.account import Account, find_account
from eslurm.security.ownership import UnsafeFile, check_program
from eslurm.security.site_keys import SITE_PUB
from eslurm.telemetry.modules import importing
from eslurm.telemetry.process import (
    SHARED_DIRECTORY_MODE,
    add_process_options,
    announce,
    become,
    give_up,
    logging_to_stderr,
    own_directory,
    run_daemon,
    stop_on_signals,
)
from eslurm.transport.tls_options import add_tls_options, tls_files
from esnoded.health_options import health_checks
from esnoded.keeper import prepare, split
from esnoded.procd.options import JOB_PROCESSES, Options
from esnoded.stepd.groups import given_controllers
from esnoded.stepd.launcher import (
    Connect,
    SupervisorUnavailable,
    connect_supervisor,
    end_older,
    ensure_supervisor,
    find_predecessor,
)
from esnoded.stepd.place import Place

_log = logging.getLogger("esnoded")
PHASE_LIMIT_S_MAX = 86_400
_PROGRAMS = {
    "prolog": "program that runs on this host before anything of a job does; if it fails, the job starts elsewhere",
    "epilog": "program that runs on this host when nothing of a job is left here",
    "check": "program that runs, as the agent's user, while a fault of this host stands; if it passes, the fault is over",
    "task-prolog": "program that runs in each task of a step, as its user, before the task",
    "task-epilog": "program that runs after each task of a step, as its user",
    "gateway-daemon": "program that serves as a gateway between modules, as the job's user, for jobs that name none",
}

if TYPE_CHECKING:
    from eslurm.security.membership import Role
    from esnoded.daemon import AgentOptions


def main(argv: list[str] | None = None) -> None:
    """Run an agent until SIGTERM. Steps outlive it."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    logging_to_stderr(arguments.log_level, arguments.log_format)
    nodes = _nodes(arguments.nodes)
    _check(parser, arguments, nodes)
    try:
        files = tls_files(arguments)
    except ValueError as error:
        give_up("esnoded", str(error))
    # Others may pass to their scripts and the sockets, and list nothing.
    state_dir = own_directory(arguments.state_dir, is_shared=True)
    arguments.site_keys = arguments.site_keys or state_dir / SITE_PUB
    try:
        # Emulated nodes are of the user that starts them, all in all.
        account = None if arguments.each else find_account(arguments.user)
        _check_programs(arguments)
        health = health_checks(arguments.health_check)
        supervisor = Options(
            arguments.nodes,
            str(arguments.site_keys.absolute()),
            prolog=arguments.prolog,
            epilog=arguments.epilog,
            phase_user=arguments.phase_user,
            phase_limit_s=arguments.phase_limit,
            task_prolog=arguments.task_prolog,
            task_epilog=arguments.task_epilog,
            gateway_daemon=arguments.gateway_daemon,
            min_uid=arguments.min_uid,
            allow_root_jobs=arguments.allow_root_jobs,
            containment=arguments.containment,
            job_processes=arguments.job_processes,
            oom_ends=arguments.oom_ends,
            bind_cores=arguments.bind_cores,
            allow_set_user_id=arguments.allow_set_user_id,
            private_dirs=_private_dirs(arguments),
            private_dirs_mib=arguments.private_dirs_mib,
            uid=account.uid if account is not None else -1,
            gid=account.gid if account is not None else -1,
        )
        prepared = _prepare(arguments, state_dir, supervisor, account)
    except (OSError, ValueError, SupervisorUnavailable) as error:
        give_up("esnoded", str(error) if isinstance(error, ValueError) else f"--state-dir: {error}")

    with importing():
        from eslurm.security.credentials import CannotJoin
        from eslurm.telemetry.clocks import wall_us
        from eslurm.transport.tls import Tls, TlsError
        from esnoded.daemon import AgentOptions, NodeDaemon
        from esnoded.spool import SpoolError

    try:
        tls = Tls(files) if files is not None else None
        become(account, prepared.home)
        role: Role = "login" if arguments.login else "agent"
        arguments.state_dir = prepared.home
        # Root's own directory is where `eslurm join` and `eslurm keys` put a newer one.
        credentials = read_member(arguments, role, nodes, wall_us(), (state_dir,))
    except (TlsError, CannotJoin) as error:
        give_up("esnoded", str(error))
    options = AgentOptions(
        cluster=arguments.cluster,
        nodes=nodes,
        total=(arguments.cores or 0, arguments.memory_mib or 0),
        satellites=tuple(endpoint for endpoint in arguments.satellites.split(",") if endpoint),
        controllers=tuple(endpoint for endpoint in arguments.controller.split(",") if endpoint),
        credentials=credentials,
        supervisor=supervisor,
        connect=prepared.connect,
        predecessor=prepared.predecessor,
        state_dir=prepared.home,
        listen=arguments.listen,
        controller_socket=arguments.controller_socket,
        allow_chaos=arguments.allow_chaos,
        metrics_listen=arguments.metrics_listen,
        tls=tls,
        is_login=arguments.login,
        socket=arguments.socket,
        check=arguments.check,
        health=health,
        contained=prepared.contained,
    )

    if arguments.each:
        _run_each(options, arguments)

    async def body() -> None:
        daemon = NodeDaemon(options)
        stop_on_signals(daemon.stop)
        await daemon.run(lambda endpoint: announce(endpoint, arguments.ready_fd))

    try:
        run_daemon("esnoded", body, arguments.loop, starts_jobs=True)
    except SpoolError as error:
        give_up("esnoded", f"--state-dir: {error}")


class _Prepared(NamedTuple):
    """Paths of the agent's own files, and its connections to step supervisors; None: it starts its own, or there is none."""

    home: Path
    connect: Connect | None = None
    predecessor: Connect | None = None
    contained: tuple[str, ...] = ()


def _prepare(
    arguments: argparse.Namespace, state_dir: Path, supervisor: Options, account: Account | None
) -> _Prepared:
    """Directories, the supervisor, and as root the keeper. Raises OSError, `SupervisorUnavailable`."""
    # Others may pass to their scripts and the sockets, and list nothing.
    state_dir.mkdir(mode=SHARED_DIRECTORY_MODE, parents=True, exist_ok=True)
    state_dir = state_dir.resolve()
    home = state_dir if account is None else prepare(state_dir, account)
    if arguments.each or arguments.login:
        return _Prepared(home)
    end_older(state_dir)
    ensure_supervisor(state_dir, supervisor)
    contained = _contained(Place(state_dir), supervisor.bind_cores)
    predecessor = find_predecessor(state_dir)
    if account is None:
        return _Prepared(home, None, predecessor, contained)
    connect = partial(connect_supervisor, state_dir, supervisor)
    keeper = split(connect, partial(find_predecessor, state_dir), arguments.ready_fd)
    former = keeper.connect_predecessor if predecessor is not None else None
    return _Prepared(home, keeper.connect, former, contained)


def _contained(place: Place, binds_cores: bool) -> tuple[str, ...]:
    """Effects of control groups on jobs here, which the log says as well. Raises OSError."""
    base = place.read_groups()
    if not base:
        _log.warning("jobs are in no control groups: %s says why", place.log)
        return ()
    given = tuple(one for one in given_controllers(base) if binds_cores or one != "cpuset")
    if binds_cores and "cpuset" not in given:
        _log.warning("--bind-cores: jobs have no cores of their own, for their control groups have no cpuset")
    _log.info("jobs are in control groups below %s, with %s", base, ", ".join(given) or "no controllers")
    return ("kill", *given)


def _run_each(options: AgentOptions, arguments: argparse.Namespace) -> NoReturn:
    from esnoded.many import CannotStart, run_many

    try:
        raise SystemExit(run_many(options, arguments.loop, arguments.ready_fd))
    except (CannotStart, ValueError) as error:
        give_up("esnoded", str(error))


def _check(parser: argparse.ArgumentParser, arguments: argparse.Namespace, nodes: tuple[str, ...]) -> None:
    """Options that need or exclude each other."""
    sizes = {"--cores": arguments.cores, "--memory-mib": arguments.memory_mib}
    if not arguments.login:
        missing = [option for option, size in sizes.items() if size is None]
        if missing:
            parser.error(f"the following arguments are required: {', '.join(missing)}")
    elif len(nodes) > 1:
        give_up(
            "esnoded",
            f"--nodes: '{arguments.nodes}' means {len(nodes)} hosts: with --login name the one that this is",
        )
    else:
        given = [option for option, size in sizes.items() if size is not None]
        given += ["--health-check"] if arguments.health_check else []
        given += [f"--{name}" for name in _PROGRAMS if getattr(arguments, name.replace("-", "_"))]
        if given or arguments.each:
            give_up("esnoded", f"--login: no job runs on a login host: leave out {(given or ['--each'])[0]}")
    if arguments.job_processes < 0:
        give_up("esnoded", f"--job-processes: {arguments.job_processes} is less than 0, which is any number")
    if arguments.each and arguments.socket:
        give_up("esnoded", "--socket: with --each every agent has a socket of its own: leave it out")


def _check_programs(arguments: argparse.Namespace) -> None:
    """Programs that this host runs for the site. Raises ValueError for one that another user could change."""
    for name in _PROGRAMS:
        path = getattr(arguments, name.replace("-", "_"))
        try:
            if path:
                check_program(path)
        except (UnsafeFile, OSError) as error:
            raise ValueError(f"--{name}: {error}") from None
    if not 0 < arguments.phase_limit <= PHASE_LIMIT_S_MAX:
        raise ValueError(f"--phase-limit: {arguments.phase_limit} is not within 1..{PHASE_LIMIT_S_MAX}")


def _private_dirs(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Directories of each job's own. Raises ValueError for one that cannot be, or would hide what jobs need."""
    if arguments.private_dirs_mib < 0:
        raise ValueError(
            f"--private-dirs-mib: {arguments.private_dirs_mib} is less than 0, which is half of the memory"
        )
    given = arguments.private_dirs
    if not given:
        return ()
    if os.geteuid() != 0:
        raise ValueError("--private-dirs: only root can give jobs directories of their own")
    sockets = str(arguments.controller_socket or "").split(":")
    needed = [Path(one).resolve() for one in (arguments.state_dir, arguments.socket, *sockets) if one]
    for path in map(Path, given.split(",")):
        place = path.resolve()
        if not path.is_absolute() or place == Path("/") or not place.is_dir():
            raise ValueError(
                f"--private-dirs: '{path}' is no directory with an absolute path, or all of them"
            )
        for one in needed:
            if one.is_relative_to(place):
                raise ValueError(f"--private-dirs: a private {path} would hide {one}, which jobs need")
    return tuple(given.split(","))


def _nodes(text: str) -> tuple[str, ...]:
    try:
        return tuple(expand(text, "--nodes"))
    except OptionError as error:
        give_up("esnoded", str(error))


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command line; the manual page is made from it."""
    parser = argparse.ArgumentParser(prog="esnoded", description="Node agent of an eslurm cluster.")
    parser.add_argument("--nodes", required=True, help="names of the nodes to serve: cn[0001-0016]")
    parser.add_argument(
        "--each",
        action="store_true",
        help="an agent process of its own for each node, with a directory below --state-dir: for emulation",
    )
    parser.add_argument("--cluster", required=True, help="name of the cluster")
    parser.add_argument("--satellites", default="", help="host:port of the satellites, comma-separated")
    parser.add_argument(
        "--controller", default="", help="host:port of the controllers, comma-separated, the last resort"
    )
    parser.add_argument("--state-dir", required=True, type=Path, help="where spool, scripts and sockets are")
    add_trust_options(parser)
    parser.add_argument("--listen", default="127.0.0.1:0", help="host:port to listen at; port 0 takes any")
    parser.add_argument(
        "--controller-socket",
        type=Path,
        default=None,
        help="the controllers' sockets on this host (a:b), for commands inside jobs; default: this agent's own",
    )
    parser.add_argument(
        "--allow-chaos", action="store_true", help="let the own user make nodes fail (see `eslurm chaos`)"
    )
    parser.add_argument(
        "--cores", type=int, help="cores that each node offers; required, but for a login host"
    )
    parser.add_argument("--memory-mib", type=int, help="memory that each node offers; the same")
    parser.add_argument(
        "--login",
        action="store_true",
        help="this is a login host ([login] nodes): no job runs here, and every user's commands are taken",
    )
    parser.add_argument(
        "--socket",
        type=Path,
        default=None,
        help="where commands on this host find the agent's API socket; default: door.sock in --state-dir",
    )
    parser.add_argument(
        "--user",
        default="",
        metavar="NAME|UID[:GID]",
        help="as root: the user that the agent is, which is not root; default: the account eslurm",
    )
    parser.add_argument(
        "--min-uid",
        type=int,
        default=1000,
        help="as root: no job of a user below this runs here (default: 1000)",
    )
    parser.add_argument("--allow-root-jobs", action="store_true", help="as root: jobs of root may run here")
    for name, when in _PROGRAMS.items():
        parser.add_argument(f"--{name}", default="", metavar="PATH", help=when)
    parser.add_argument(
        "--health-check",
        action="append",
        default=[],
        metavar="CHECK",
        help="program that runs as the agent's user by 'name=NAME [interval=SECONDS] [limit=SECONDS] "
        "[when=any|idle|allocated] PATH [ARGUMENT...]'; while it fails, this host takes no new work (may be repeated)",
    )
    parser.add_argument(
        "--phase-user",
        choices=("root", "job"),
        default="root",
        help="prolog and epilog run as root, or as the job's user (default: root; without root: as the own user)",
    )
    parser.add_argument(
        "--phase-limit",
        type=int,
        default=300,
        metavar="SECONDS",
        help="prolog, epilog and check are ended after this time, and have failed (default: 300)",
    )
    parser.add_argument(
        "--containment",
        choices=("auto", "none", "required"),
        default="auto",
        help="jobs are in control groups (cgroup v2) where this host has them, never, or else the agent does not start "
        "(default: auto)",
    )
    parser.add_argument(
        "--job-processes",
        type=int,
        default=JOB_PROCESSES,
        metavar="N",
        help="most processes and threads of a job in its control group on a node, 0: unlimited (default: 32768)",
    )
    parser.add_argument(
        "--oom-ends",
        choices=("step", "job"),
        default="step",
        help="where a job has used its memory, one step of it ends on the node, or all of it (default: step)",
    )
    parser.add_argument(
        "--bind-cores",
        action="store_true",
        help="each job has cores of its own on a node, where its control group has cpuset and enough cores are free",
    )
    parser.add_argument(
        "--private-dirs",
        default="",
        metavar="PATHS",
        help="directories that each job has to itself on a node, gone at its end, such as /tmp,/var/tmp,/dev/shm (as root)",
    )
    parser.add_argument(
        "--private-dirs-mib",
        type=int,
        default=0,
        metavar="MIB",
        help="most MiB in each of them, which are memory of the job; 0: half of the node's memory (default: 0)",
    )
    parser.add_argument(
        "--allow-set-user-id",
        action="store_true",
        help="set-user-id programs (sudo, ping) gain rights in users' jobs (as root)",
    )
    add_tls_options(parser)
    add_process_options(parser, "serve /metrics and /health there (with --each: from this port on, one each)")
    return parser


if __name__ == "__main__":
    main()
