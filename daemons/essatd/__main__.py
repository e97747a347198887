"""The command line of `essatd`."""

from __future__ import annotations

import argparse
from pathlib import Path

from eslurm.links.trust_options import add_trust_options, read_member
from eslurm.security.home import make_home
from eslurm.security.site_keys import SITE_PUB
from eslurm.telemetry.modules import importing
from eslurm.telemetry.process import (
    account_of,
    add_process_options,
    add_user_option,
    announced,
    become,
    give_up,
    logging_to_stderr,
    own_directory,
    run_daemon,
    stop_on_signals,
)
from eslurm.transport.options import SOCKETS_MIN
from eslurm.transport.tls_options import add_tls_options, tls_files

HOME = "satellite"
"""Its own directory in the state directory, when root starts it as another user."""


def main(argv: list[str] | None = None) -> None:
    """Run a satellite until SIGTERM."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.sockets_max < SOCKETS_MIN:
        parser.error(f"--sockets-max: {arguments.sockets_max} is too few: at least {SOCKETS_MIN}")
    logging_to_stderr(arguments.log_level, arguments.log_format)
    with importing():
        from eslurm.faults.chaos_socket import NAME as CHAOS
        from eslurm.security.credentials import CannotJoin
        from eslurm.security.membership import IDENTITY, MEMBERSHIP
        from eslurm.telemetry.clocks import wall_us
        from eslurm.transport.tls import Tls, TlsError
        from essatd.daemon import Satellite, SatelliteOptions

    account = account_of(arguments.user)
    site_dir = state_dir = own_directory(arguments.state_dir, is_shared=account is not None)
    arguments.site_keys = arguments.site_keys or state_dir / SITE_PUB
    try:
        files = tls_files(arguments)
        tls = Tls(files) if files is not None else None
        if account is not None:
            state_dir = make_home(state_dir, HOME, account, copied=(IDENTITY, MEMBERSHIP), linked=(CHAOS,))
            become(account, state_dir)
        arguments.state_dir = state_dir
        # Root's own directory is where `eslurm join` and `eslurm keys` put a newer one.
        credentials = read_member(arguments, "satellite", (arguments.name,), wall_us(), (site_dir,))
    except (OSError, ValueError, TlsError, CannotJoin) as error:
        give_up("essatd", str(error))

    chaos_path = state_dir / CHAOS if arguments.allow_chaos else None
    options = SatelliteOptions(
        cluster=arguments.cluster,
        name=arguments.name,
        listen=arguments.listen,
        controllers=tuple(endpoint for endpoint in arguments.controllers.split(",") if endpoint),
        credentials=credentials,
        sockets_max=arguments.sockets_max,
        chaos_path=chaos_path,
        metrics_listen=arguments.metrics_listen,
        tls=tls,
    )

    async def body() -> None:
        satellite = Satellite(options)
        stop_on_signals(satellite.stop)
        await satellite.run(announced(arguments.ready_fd))

    run_daemon("essatd", body, arguments.loop)


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command line; the manual page is made from it."""
    parser = argparse.ArgumentParser(prog="essatd", description="Satellite of an eslurm cluster.")
    parser.add_argument("--cluster", required=True, help="name of the cluster")
    parser.add_argument("--name", default="satellite", help="what people call this satellite")
    parser.add_argument("--listen", required=True, help="host:port to listen at; port 0 takes any")
    parser.add_argument("--controllers", required=True, help="host:port of the controllers, comma-separated")
    parser.add_argument(
        "--state-dir",
        required=True,
        type=Path,
        help="where its identity is, and its socket for --allow-chaos",
    )
    add_user_option(parser)
    add_trust_options(parser)
    parser.add_argument(
        "--allow-chaos", action="store_true", help="let the own user make it fail (see `eslurm chaos`)"
    )
    parser.add_argument(
        "--sockets-max",
        type=int,
        default=256,
        help="open connections to aim at, four times the width of its trees; beyond, agents have to wait (default 256)",
    )
    add_tls_options(parser)
    add_process_options(parser, "serve /metrics and /health there")
    return parser


if __name__ == "__main__":
    main()
