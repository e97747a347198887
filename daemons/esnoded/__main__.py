"""The command line of `esnoded`. It makes sure of the step supervisor before anything heavy is imported."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from eslurm.compat.errors import OptionError
from eslurm.compat.hostlist import expand
from eslurm.rpc.tls_options import add_tls_options, tls_files
from eslurm.telemetry.modules import importing
from eslurm.telemetry.process import (
    EXIT_CANNOT_START,
    add_process_options,
    announce,
    logging_to_stderr,
    read_key,
    run_daemon,
    stop_on_signals,
)
from esnoded.stepd.launcher import SupervisorUnavailable, ensure_supervisor

if TYPE_CHECKING:
    from esnoded.daemon import AgentOptions

STATE_DIR_MODE = 0o711


def main(argv: list[str] | None = None) -> None:
    """Run an agent until SIGTERM. Steps outlive it."""
    arguments = _parser().parse_args(argv)
    logging_to_stderr(arguments.log_level, arguments.log_format)
    key = read_key(arguments.key_file)
    nodes = _nodes(arguments.nodes)
    try:
        files = tls_files(arguments)
    except ValueError as error:
        _give_up(str(error))
    state_dir: Path = arguments.state_dir
    try:
        # Others may pass to their scripts and the door, and list nothing.
        state_dir.mkdir(mode=STATE_DIR_MODE, parents=True, exist_ok=True)
        if not arguments.each:
            ensure_supervisor(state_dir)
    except (OSError, SupervisorUnavailable) as error:
        _give_up(f"--state-dir: {error}")

    with importing():
        from eslurm.rpc.tls import Tls, TlsError
        from esnoded.daemon import AgentOptions, NodeDaemon
        from esnoded.spool import SpoolError

    try:
        tls = Tls(files) if files is not None else None
    except TlsError as error:
        _give_up(str(error))
    options = AgentOptions(
        cluster=arguments.cluster,
        nodes=nodes,
        total=(arguments.cores, arguments.memory_mib),
        satellites=tuple(endpoint for endpoint in arguments.satellites.split(",") if endpoint),
        controllers=tuple(endpoint for endpoint in arguments.controller.split(",") if endpoint),
        key=key,
        state_dir=state_dir.resolve(),
        listen=arguments.listen,
        controller_socket=arguments.controller_socket,
        allow_chaos=arguments.allow_chaos,
        metrics_listen=arguments.metrics_listen,
        tls=tls,
    )

    if arguments.each:
        _run_each(options, arguments)

    async def body() -> None:
        daemon = NodeDaemon(options)
        stop_on_signals(daemon.stop)
        await daemon.run(lambda endpoint: announce(endpoint, arguments.ready_fd))

    try:
        run_daemon("esnoded", body, arguments.loop)
    except SpoolError as error:
        _give_up(f"--state-dir: {error}")


def _run_each(options: AgentOptions, arguments: argparse.Namespace) -> NoReturn:
    from esnoded.many import CannotStart, run_many

    try:
        raise SystemExit(run_many(options, arguments.loop, arguments.ready_fd))
    except (CannotStart, ValueError) as error:
        _give_up(str(error))


def _nodes(text: str) -> tuple[str, ...]:
    try:
        return tuple(expand(text, "--nodes"))
    except OptionError as error:
        _give_up(str(error))


def _give_up(text: str) -> NoReturn:
    sys.stderr.write(f"esnoded: {text}\n")
    raise SystemExit(EXIT_CANNOT_START)


def _parser() -> argparse.ArgumentParser:
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
    parser.add_argument("--key-file", required=True, type=Path, help="file with the cluster's secret")
    parser.add_argument("--state-dir", required=True, type=Path, help="where spool, scripts and sockets are")
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
    parser.add_argument("--cores", required=True, type=int, help="cores that each node offers")
    parser.add_argument("--memory-mib", required=True, type=int, help="memory that each node offers")
    add_tls_options(parser)
    add_process_options(parser, "serve /metrics and /health there (with --each: from this port on, one each)")
    return parser


if __name__ == "__main__":
    main()
