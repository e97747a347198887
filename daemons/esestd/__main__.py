"""The command line of `esestd`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from eslurm.security.home import make_home
from eslurm.telemetry.modules import importing
from eslurm.telemetry.process import (
    account_of,
    add_process_options,
    add_user_option,
    announced,
    become,
    give_up,
    listening,
    logging_to_stderr,
    own_directory,
    run_daemon,
    stop_on_signals,
)
from eslurm.transport.tls_options import TlsFiles, add_tls_options, tls_files

if TYPE_CHECKING:
    from eslurm.transport.tls import Tls

log = logging.getLogger("esestd")

HOME = "estimator"
"""Its own directory in the state directory, when root starts it as another user."""
TOKEN_FILE = "token"  # nosec B105 # a file's name
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main(argv: list[str] | None = None) -> None:
    """Run an estimator until SIGTERM."""
    arguments = build_parser().parse_args(argv)
    logging_to_stderr(arguments.log_level, arguments.log_format)
    # Before numpy is imported: one core is enough, and the host is the controller's.
    for name in _ONE_THREAD:
        os.environ.setdefault(name, "1")
    with importing():
        from esestd.daemon import MODELS, EstimatorDaemon, EstimatorOptions
        from esestd.leader_calls import TokenFile
        from eslurm.config.file import estimator_settings, read_config
        from eslurm.config.problems import ConfigError
        from eslurm.estimator.files import ModelError, other_settings, read_kept
        from eslurm.estimator.registry import UnknownEstimator, make
        from eslurm.ports.api import ApiUnreachable

    try:
        config = read_config(arguments.config, is_obeyed=True)
        warm = read_kept(arguments.warm_start, config.estimator.name) if arguments.warm_start else None
    except (ConfigError, ModelError) as error:
        give_up("esestd", str(error))
    settings = estimator_settings(config.estimator)
    others = other_settings(warm, settings) if warm is not None else ""
    if warm is not None and others:
        log.warning("--warm-start: %s was learnt with other settings (%s)", warm.path, others)
    account = account_of(arguments.user)
    state_dir = own_directory(arguments.state_dir, is_shared=account is not None)
    sockets = tuple(path for path in arguments.controller_socket.split(":") if path)
    try:
        files = None if sockets else tls_files(arguments, config.tls, state_dir, listens=False)
        tls = _tls(files) if files is not None else None
        if account is not None:
            state_dir = make_home(state_dir, HOME, account, moved=(MODELS,), copied=(TOKEN_FILE,))
            # What it learns with is imported when it is made.
            make(config.estimator.name, settings)
            become(account, state_dir)
    except UnknownEstimator as error:
        give_up("esestd", f"{arguments.config}: estimator: {error}")
    except (OSError, ValueError) as error:
        give_up("esestd", str(error))
    token_file = (arguments.token_file or state_dir / TOKEN_FILE).absolute()
    try:
        if not sockets:
            TokenFile(token_file).read()
    except ApiUnreachable as error:
        give_up("esestd", str(error))
    controllers = arguments.controllers or config.controller.listen
    options = EstimatorOptions(
        cluster=config.cluster.name,
        estimator=config.estimator.name,
        settings=settings,
        state_dir=state_dir,
        sockets=sockets,
        controllers=tuple(endpoint for endpoint in controllers.split(",") if endpoint),
        token_file=token_file,
        refresh_s=config.estimator.refresh_s,
        metrics_listen=listening(arguments.metrics_listen or config.estimator.metrics_listen),
        warm_start=warm.model if warm is not None else None,
        tls=tls,
    )
    is_learning = False

    async def body() -> None:
        nonlocal is_learning
        try:
            daemon = EstimatorDaemon(options)
        except ValueError as error:
            give_up("esestd", f"{arguments.config}: estimator: {error}")
        stop_on_signals(daemon.stop)
        await daemon.run(announced(arguments.ready_fd))
        is_learning = daemon.is_learning

    run_daemon("esestd", body, arguments.loop)
    if is_learning:
        # Compiled code that still computes must not meet an interpreter that takes itself apart.
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(0)


def _tls(files: TlsFiles) -> Tls:
    # It brings gRPC, which calls through a socket do without.
    from eslurm.transport.tls import Tls, TlsError

    try:
        return Tls(files)
    except TlsError as error:
        give_up("esestd", str(error))


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command line; the manual page is made from it."""
    parser = argparse.ArgumentParser(
        prog="esestd", description="Estimator of an eslurm cluster: learns how long jobs run."
    )
    parser.add_argument("--config", required=True, type=Path, help="the cluster's configuration (TOML)")
    parser.add_argument("--state-dir", required=True, type=Path, help="where its models are kept")
    add_user_option(parser)
    parser.add_argument(
        "--controller-socket",
        default="",
        help="sockets of controllers on this host, separated by colons: any of them leads to the one that leads",
    )
    parser.add_argument(
        "--controllers",
        default="",
        help="without --controller-socket: host:port of the controllers, comma-separated "
        "(default: the configuration's controller.listen)",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        default=None,
        help="with --controllers: file with a token of scope estimator, read anew when it changes (default: token, in "
        "--state-dir)",
    )
    parser.add_argument(
        "--warm-start",
        metavar="FILE",
        type=Path,
        default=None,
        help="begin with this model of another cluster (models/*.npz there) until there is one of this cluster",
    )
    add_tls_options(parser)
    add_process_options(
        parser, "serve /metrics and /health there (default: the configuration's estimator.metrics_listen)"
    )
    return parser


if __name__ == "__main__":
    main()
