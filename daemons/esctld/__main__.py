"""`esctld`: the command line of the controller."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import click

from eslurm.core.model.plurals import quoted
from eslurm.security.account import Account
from eslurm.security.home import CONTROLLER, make_home, share
from eslurm.security.site_keys import SITE_KEY
from eslurm.telemetry.modules import importing
from eslurm.telemetry.process import (
    EXIT_CANNOT_START,
    OWN_DIRECTORY_MODE,
    SHARED_DIRECTORY_MODE,
    USER_HELP,
    account_of,
    announce,
    become,
    listening,
    logging_to_stderr,
    own_directory,
    run_daemon,
    stop_on_signals,
)
from eslurm.transport.tls_options import tls_files

if TYPE_CHECKING:
    from eslurm.config.file import Config

log = logging.getLogger("esctld")

EXIT_FENCED = 3
"""Another controller leads: starting this one anew is safe, and makes it a standby."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
FILE = click.Path(path_type=Path)
MOVED = (
    *("esctld.db", "esctld.db-*", "audit.log*", "audit-*.log*"),
    *("identity.key", "identity-*.key", "membership", "membership-*"),
)
"""What a controller that was root's has written into the state directory."""


@click.command(
    epilog="Example: esctld --config eslurm.toml --state-dir /var/lib/eslurm --name c2 --listen 10.0.0.2:6820"
)
@click.option(
    "--config", "config_file", required=True, type=click.Path(path_type=Path), help="Configuration (TOML)."
)
@click.option(
    "--state-dir", required=True, type=click.Path(path_type=Path), help="Holds socket, store and keys."
)
@click.option("--user", default="", metavar="NAME|UID[:GID]", help=f"{USER_HELP}.")
@click.option("--name", default="main", help="Of this controller; each one of a cluster has its own.")
@click.option(
    "--listen", default="", help="Address for links; default: the configuration's controller.listen."
)
@click.option("--ready-fd", type=int, help="Write `ready ENDPOINT` to this file descriptor when serving.")
@click.option(
    "--loop", type=click.Choice(["uvloop", "asyncio"]), default="uvloop", help="Event loop to run on."
)
@click.option(
    "--metrics-listen",
    default="",
    metavar="HOST:PORT",
    help="Serve /metrics and /health there; default: the configuration's controller.metrics_listen.",
)
@click.option(
    "--tls-certificate",
    type=FILE,
    metavar="FILE",
    help="Certificate; default: the configuration's tls.certificate.",
)
@click.option("--tls-key", type=FILE, metavar="FILE", help="Its key; default: the configuration's tls.key.")
@click.option("--tls-ca", type=FILE, metavar="FILE", help="Authorities; default: the configuration's tls.ca.")
@click.option(
    "--tls-require-client-certificate", is_flag=True, help="Serve only who shows a certificate of theirs."
)
@click.option(
    "--tls-name",
    default="",
    metavar="NAME",
    help="What all certificates name; default: the configuration's tls.name.",
)
@click.option("--log-level", default="info", help="debug, info, warning or error.")
@click.option("--log-format", default="text", help="text or json.")
def main(
    config_file: Path,
    state_dir: Path,
    user: str,
    name: str,
    listen: str,
    ready_fd: int | None,
    loop: str,
    metrics_listen: str,
    log_level: str,
    log_format: str,
    **tls_given: Any,
) -> None:
    """The controller: decides, plans and remembers everything of one cluster.

    Of several on one store one leads; the others stand by and follow it.
    """
    logging_to_stderr(log_level, log_format)
    with importing():
        from esctld.daemon import OWNER, CannotStart, ControllerOptions
        from esctld.lead.site import Member, SiteSigner
        from esctld.roles import ControllerProcess
        from eslurm.config.file import ConfigError, read_config
        from eslurm.ports.store import FenceLost, StoreError
        from eslurm.security.credentials import CannotJoin
        from eslurm.security.site_keys import SiteKeyError
        from eslurm.store.engines import load_driver, shown
        from eslurm.store.sql import SqlStore
        from eslurm.transport.tls import Tls, TlsError

    if not NAME.fullmatch(name):
        _cannot_start(f"--name: {quoted(name)} is no name: use up to 32 letters, digits, '-' and '_'")
    try:
        config = read_config(config_file, is_obeyed=True)
    except ConfigError as error:
        _cannot_start(str(error))
    account = account_of(user)
    site_dir = state_dir = own_directory(
        state_dir, OWN_DIRECTORY_MODE if account is None else SHARED_DIRECTORY_MODE
    )
    if config.cluster.key_file:
        log.warning("%s: cluster.key_file: nothing uses that key any more: remove the line", config_file)
    try:
        files = tls_files(SimpleNamespace(**tls_given), config.tls, state_dir)
        tls = Tls(files) if files is not None else None
        if account is not None:
            state_dir = _own_home(site_dir, name, account)
            load_driver(_store_url(config, state_dir))
            become(account, state_dir, ("eslurm.api.jwt_tokens",) if config.tokens.jwt.issuer else ())
            if not os.access(config_file, os.R_OK):
                _cannot_start(
                    f"{config_file}: uid {account.uid} cannot read it: chgrp it to that user, chmod 640"
                )
        site = SiteSigner(site_dir)
    except (OSError, ValueError, TlsError, SiteKeyError) as error:
        _cannot_start(str(error))
    if config.tokens.jwt.issuer:
        with importing():
            from eslurm.api.jwt_tokens import JwtKeysError, read_keys

        try:
            read_keys(site_dir / config.tokens.jwt.key_file)
        except JwtKeysError as error:
            _cannot_start(f"{config_file}: {error}")
    if site.cluster != config.cluster.name:
        _cannot_start(
            f"{site_dir / SITE_KEY} belongs to cluster {site.cluster}, the configuration is of {config.cluster.name}"
        )
    try:
        member = Member(site_dir, state_dir, name, site, is_first=name == OWNER)
    except (CannotJoin, OSError) as error:
        _cannot_start(str(error))
    options = ControllerOptions(
        *(config, config_file.resolve(), site_dir, state_dir, site, member, name),
        listen,
        listening(metrics_listen),
        tls,
    )
    listening(options.watched_at)
    url = _store_url(config, state_dir)

    async def serve() -> None:
        store = SqlStore(url, config.cluster.name)
        try:
            controller = ControllerProcess(options, store)
            stop_on_signals(controller.stop)
            ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            ready.add_done_callback(lambda done: announce(done.result(), ready_fd))
            await controller.run(ready)
        finally:
            await store.close()

    try:
        run_daemon("esctld", serve, loop)
    except (CannotStart, ConfigError) as error:
        _cannot_start(f"{config_file}: {error}")
    except FenceLost as error:
        sys.stderr.write(f"esctld: another controller leads, this one has done nothing since: {error}\n")
        raise SystemExit(EXIT_FENCED) from None
    except StoreError as error:
        _cannot_start(f"the job store {shown(url)}: {error}")


def _store_url(config: Config, state_dir: Path) -> str:
    return config.controller.store_url or f"sqlite:///{state_dir / 'esctld.db'}"


def _own_home(site_dir: Path, name: str, account: Account) -> Path:
    """The controller's own directory; the site's keys stay root's, and its group reads them. Raises OSError, ValueError."""
    from esctld.daemon import socket_of
    from eslurm.security import ledger

    share(site_dir / SITE_KEY, account)
    ledger.open_for(site_dir, account)
    return make_home(site_dir, CONTROLLER, account, moved=MOVED, linked=(socket_of(name),))


def _cannot_start(text: str) -> NoReturn:
    sys.stderr.write(f"esctld: {text}\n")
    raise SystemExit(EXIT_CANNOT_START)


if __name__ == "__main__":
    main()
