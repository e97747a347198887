"""`esctld`: the command line of the controller."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from eslurm.core.model.wording import quoted
from eslurm.security.account import Account
from eslurm.security.home import CONTROLLER, make_home, share
from eslurm.security.ownership import UnsafeFile, check_program
from eslurm.security.site_keys import SITE_KEY
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
from eslurm.transport.tls_options import add_tls_options, tls_files

if TYPE_CHECKING:
    from eslurm.config.sections import Config

log = logging.getLogger("esctld")

EXIT_FENCED = 3
"""Another controller leads: starting this one anew is safe, and makes it a standby."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
MOVED = (
    *("esctld.db", "esctld.db-*", "audit.log*", "audit-*.log*"),
    *("identity.key", "identity-*.key", "membership", "membership-*"),
)
"""Files that a controller running as root has written into the state directory."""


def main(argv: list[str] | None = None) -> None:
    """Run a controller until SIGTERM."""
    arguments = build_parser().parse_args(argv)
    config_file, name = arguments.config, arguments.name
    logging_to_stderr(arguments.log_level, arguments.log_format)
    with importing():
        from esctld.daemon import OWNER, CannotStart, ControllerOptions
        from esctld.lead.site import Member, SiteSigner
        from esctld.roles import ControllerProcess
        from eslurm.config.file import read_config
        from eslurm.config.problems import ConfigError
        from eslurm.ports.store import FenceLost, StoreError
        from eslurm.security.credentials import CannotJoin
        from eslurm.security.site_keys import SiteKeyError
        from eslurm.store.engines import load_driver, shown
        from eslurm.store.sql import SqlStore
        from eslurm.transport.tls import Tls, TlsError

    if not NAME.fullmatch(name):
        give_up("esctld", f"--name: {quoted(name)} is no name: use up to 32 letters, digits, '-' and '_'")
    try:
        config = read_config(config_file, is_obeyed=True)
    except ConfigError as error:
        give_up("esctld", str(error))
    account = account_of(arguments.user)
    site_dir = state_dir = own_directory(arguments.state_dir, is_shared=account is not None)
    if config.cluster.key_file:
        log.warning("%s: cluster.key_file: nothing uses that key any more: remove the line", config_file)
    try:
        files = tls_files(arguments, config.tls, state_dir)
        tls = Tls(files) if files is not None else None
        if account is not None:
            state_dir = _own_home(site_dir, name, account)
            load_driver(_store_url(config, state_dir))
            become(account, state_dir, _later(config))
            if not os.access(config_file, os.R_OK):
                give_up(
                    "esctld",
                    f"{config_file}: uid {account.uid} cannot read it: chgrp it to that user, chmod 640",
                )
        site = SiteSigner(site_dir)
        _check_programs(config)
    except (OSError, ValueError, TlsError, SiteKeyError) as error:
        give_up("esctld", str(error))
    if config.tokens.jwt.issuer:
        with importing():
            from eslurm.api.jwt_tokens import JwtKeysError, read_keys

        try:
            read_keys(site_dir / config.tokens.jwt.key_file)
        except JwtKeysError as error:
            give_up("esctld", f"{config_file}: {error}")
    if site.cluster != config.cluster.name:
        give_up(
            "esctld",
            f"{site_dir / SITE_KEY} belongs to cluster {site.cluster}, the configuration is of {config.cluster.name}",
        )
    try:
        member = Member(site_dir, state_dir, name, site, is_first=name == OWNER)
    except (CannotJoin, OSError) as error:
        give_up("esctld", str(error))
    options = ControllerOptions(
        *(config, config_file.resolve(), site_dir, state_dir, site, member, name),
        arguments.listen,
        arguments.metrics_listen,
        tls,
    )
    listening(options.watched_at)
    url = _store_url(config, state_dir)

    async def serve() -> None:
        store = SqlStore(url, config.cluster.name)
        try:
            controller = ControllerProcess(options, store)
            stop_on_signals(controller.stop)
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, controller.hang_up)
            await controller.run(announced(arguments.ready_fd))
        finally:
            await store.close()

    try:
        run_daemon("esctld", serve, arguments.loop)
    except (CannotStart, ConfigError) as error:
        give_up("esctld", f"{config_file}: {error}")
    except FenceLost as error:
        give_up("esctld", f"another controller leads, this one has done nothing since: {error}", EXIT_FENCED)
    except StoreError as error:
        give_up("esctld", f"the job store {shown(url)}: {error}")


def _later(config: Config) -> Iterator[str]:
    """Modules that are imported on demand; the controller's user need not be able to read them."""
    if config.tokens.jwt.issuer:
        yield "eslurm.api.jwt_tokens"
    if config.federation.name:
        # `ssl` imports the last one, for the dates of certificates.
        yield from ("esctld.lead.federation", "eslurm.federation.configured", "_strptime")


def _check_programs(config: Config) -> None:
    """Programs that this host runs around jobs. Raises ValueError for one that another user could change."""
    for key in ("controller_prolog", "controller_epilog"):
        path = getattr(config.phases, key)
        try:
            if path:
                check_program(path)
        except (UnsafeFile, OSError) as error:
            raise ValueError(f"phases.{key}: {error}") from None


def _store_url(config: Config, state_dir: Path) -> str:
    return config.controller.store_url or f"sqlite:///{state_dir / 'esctld.db'}"


def _own_home(site_dir: Path, name: str, account: Account) -> Path:
    """The controller's own directory; the site's keys stay root's, readable by its group. Raises OSError, ValueError."""
    from esctld.daemon import socket_of
    from eslurm.security import ledger

    share(site_dir / SITE_KEY, account)
    ledger.open_for(site_dir, account)
    return make_home(site_dir, CONTROLLER, account, moved=MOVED, linked=(socket_of(name),))


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command line; the manual page is made from it."""
    parser = argparse.ArgumentParser(
        prog="esctld",
        description="Controller of an eslurm cluster: decides, plans and remembers everything. Of several on one store one "
        "leads; the others stand by and follow it.",
        epilog="Example: esctld --config eslurm.toml --state-dir /var/lib/eslurm --name c2 --listen 10.0.0.2:7400",
    )
    parser.add_argument("--config", required=True, type=Path, help="the cluster's configuration (TOML)")
    parser.add_argument("--state-dir", required=True, type=Path, help="holds socket, store and keys")
    add_user_option(parser)
    parser.add_argument(
        "--name", default="main", help="of this controller; each one of a cluster has its own"
    )
    parser.add_argument(
        "--listen", default="", help="address for links; default: the configuration's controller.listen"
    )
    add_tls_options(parser)
    add_process_options(
        parser, "serve /metrics and /health there; default: the configuration's controller.metrics_listen"
    )
    return parser


if __name__ == "__main__":
    main()
