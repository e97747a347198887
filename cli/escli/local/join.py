"""`eslurm join`: ask a controller for this host's membership, and keep the answer.

Invariant: the identity key never leaves the directory, and nothing of an answer is kept that is not proven.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from escli import exits
from escli.errors import ClusterError, unusable
from escli.interrupts import Interrupts
from eslurm.compat.errors import OptionError, escaped
from eslurm.compat.hostlist import expand, fold
from eslurm.core.model.member import NAMES_MAX, ROLES
from eslurm.security.files import UnsafeFile, read_private, write_public
from eslurm.security.joining import FINGERPRINT_DIGITS, BadToken, CannotTrust, JoinSecret, Trust, fingerprint
from eslurm.security.membership import IDENTITY, MEMBERSHIP, find_identity
from eslurm.security.ownership import make_own_directory
from eslurm.security.sealing import BadSeal
from eslurm.security.site_keys import SITE_PUB, Ring, SiteKeyError, read_ring, write_ring
from eslurm.transport.tls_options import tls_files

AGAIN_MIN_S = 0.2
AGAIN_MAX_S = 30.0
FILE = click.Path(path_type=Path)


@click.command(
    "join",
    short_help="Make this host a member of a cluster.",
    context_settings={"max_content_width": 100},
)
@click.argument("controllers", metavar="CONTROLLER:PORT[,...]")
@click.option(
    "--role", default="agent", show_default=True, type=click.Choice(ROLES), help="What its daemon is."
)
@click.option(
    "--nodes", "--name", "nodes", required=True, metavar="LIST", help="The nodes it serves, or its own name."
)
@click.option("--state-dir", required=True, type=FILE, metavar="DIR", help="The daemon's state directory.")
@click.option("--token-file", type=FILE, metavar="FILE", help="A join token (esctl node token create).")
@click.option(
    "--site-key", default="", metavar="FINGERPRINT", help="Of the site's key, as `eslurm keys list` shows it."
)
@click.option(
    "--timeout",
    type=click.FloatRange(1, 86_400),
    default=600.0,
    metavar="S",
    help="Patience in seconds (600).",
)
@click.option("--tls-ca", type=FILE, metavar="FILE", help="Where the cluster uses TLS: its authorities.")
@click.option(
    "--tls-certificate", type=FILE, metavar="FILE", help="This host's certificate, where one is asked for."
)
@click.option("--tls-key", type=FILE, metavar="FILE", help="Its key.")
@click.option("--tls-name", default="", metavar="NAME", help="What the controllers' certificates name.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def join(
    controllers: str,
    role: Any,
    nodes: str,
    state_dir: Path,
    token_file: Path | None,
    site_key: str,
    timeout: float,
    as_json: bool,
    **tls_given: Any,
) -> int:
    """Draw this host's key, ask a controller to let it in, and keep the membership in DIR.

    With a join token it is let in at once. Without one an administrator approves it: `esctl node pending` and
    `esctl node approve NAME --fingerprint F`, with the fingerprint that is shown here.

    \b
    eslurm join ctl1:7400 --nodes cn001 --state-dir /var/lib/eslurm-node --token-file token
    eslurm join ctl1:7400,ctl2:7400 --nodes cn001 --state-dir /var/lib/eslurm-node --site-key 5f1c...
    eslurm join ctl1:7400 --role satellite --name sat1 --state-dir /var/lib/eslurm-sat --token-file token
    """
    trust = _trust(token_file, site_key)
    names = _names(nodes)
    endpoints = [word.strip() for word in controllers.split(",") if word.strip()]
    try:
        directory = Path(make_own_directory(state_dir, 0o711))
        identity = find_identity(directory / IDENTITY)
    except UnsafeFile as error:
        raise unusable(str(error)) from None
    except OSError as error:
        raise unusable(f"{error.filename or state_dir}: {error.strerror}") from None
    shown = fingerprint(identity.public)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from eslurm.links.join_client import JoinWish
    from eslurm.transport.tls import Tls, TlsError

    try:
        # One is shown where one is given: a cluster may ask for it.
        shows = tls_given["tls_certificate"] is not None or tls_given["tls_key"] is not None
        files = tls_files(SimpleNamespace(**tls_given, tls_require_client_certificate=shows), listens=False)
        tls = Tls(files) if files is not None else None
    except (ValueError, TlsError) as error:
        raise unusable(str(error)) from None
    with Interrupts() as interrupts:
        asking = _Asking(endpoints, JoinWish(identity, role, names, trust), tls, shown, timeout, interrupts)
        ring, membership = asking.run()
    _keep(directory, ring, membership)
    if as_json:
        from escli.console import to_json

        click.echo(
            to_json({"cluster": ring.cluster, "state_dir": str(directory), "role": role, "names": names})
        )
    else:
        click.echo(f"{directory}: {role} {names} of cluster {ring.cluster}")
    return exits.OK


class _Asking:
    """Asks one controller after the other until one has given a final answer."""

    def __init__(
        self, endpoints: list[str], wish: Any, tls: Any, shown: str, timeout_s: float, interrupts: Interrupts
    ) -> None:
        self._endpoints = endpoints
        self._wish = wish
        self._tls = tls
        self._shown = shown
        self._deadline_s = time.monotonic() + timeout_s
        self._timeout_s = timeout_s
        self._interrupts = interrupts
        self._told = ""

    def run(self) -> tuple[Ring, bytes]:
        """The site's keys and the membership. Raises `ClusterError`."""
        from eslurm.links.join_client import Unreachable, ask
        from eslurm.links.join_server import ISSUED, REFUSED

        last, is_heard = "", False
        while True:
            again_s = 1.0
            failures: list[str] = []
            for endpoint in self._endpoints:
                try:
                    said = asyncio.run(ask(endpoint, self._wish, self._tls))
                except Unreachable as error:
                    failures.append(str(error))
                    last = "; ".join(failures)
                    continue
                except CannotTrust as error:
                    raise ClusterError(f"{endpoint}: {escaped(str(error))}", exits.FAILED) from None
                if said.state == ISSUED and said.ring is not None:
                    return said.ring, said.membership
                if said.state == REFUSED:
                    raise ClusterError(f"refused by {endpoint}: {escaped(said.text)}", exits.FAILED)
                again_s, last, is_heard = said.again_s, said.text, True
                break
            self._tell(escaped(last))
            again_s = min(max(again_s, AGAIN_MIN_S), AGAIN_MAX_S)
            if time.monotonic() + again_s > self._deadline_s:
                code = exits.FAILED if is_heard else exits.UNREACHABLE
                raise ClusterError(f"not let in within {self._timeout_s:g} s: {escaped(last)}", code)
            self._interrupts.wait([], again_s)

    def _tell(self, text: str) -> None:
        """Print each new message once."""
        from escli.console import tell

        if text != self._told:
            self._told = text
            tell(f"{self._wish.role} {self._wish.names}, fingerprint {self._shown}: {text}")


def _trust(token_file: Path | None, site_key: str) -> Trust:
    """The trusted authors of the answer: without a token or a fingerprint any host on the network could answer."""
    digits = site_key.replace(":", "").lower()
    if token_file is None and not digits:
        raise unusable(
            "--token-file or --site-key is missing, so nothing tells this cluster from another: have a join token made "
            "(esctl node token create), or give the fingerprint that `eslurm keys list` shows on a controller's host"
        )
    if digits and (len(digits) != FINGERPRINT_DIGITS or not set(digits) <= set("0123456789abcdef")):
        raise unusable(
            f"--site-key: {escaped(site_key[:80])} is no fingerprint of {FINGERPRINT_DIGITS} digits: use the one that "
            "`eslurm keys list` shows on a controller's host"
        )
    if token_file is None:
        return Trust(None, digits)
    try:
        return Trust(JoinSecret.parse(read_private(token_file).decode("ascii", "replace")), digits)
    except UnsafeFile as error:
        raise unusable(f"--token-file: {error}") from None
    except BadToken as error:
        raise unusable(f"--token-file: {token_file} holds {error}") from None


def _names(text: str) -> str:
    try:
        return fold(expand(text, "--nodes", NAMES_MAX))
    except OptionError as error:
        raise unusable(str(error)) from None


def _keep(directory: Path, ring: Ring, membership: bytes) -> None:
    """Write the files that daemons read at their start; another site's keys are not replaced."""
    path = directory / SITE_PUB
    try:
        if path.exists():
            known = read_ring(path)
            ring = known.successor(ring.sealed) or known
        write_ring(path, ring)
        write_public(directory / MEMBERSHIP, membership)
    except (BadSeal, SiteKeyError, UnsafeFile) as error:
        raise unusable(f"{path} is of another site ({error}): remove it, or use another directory") from None
    except OSError as error:
        raise ClusterError(f"{error.filename or path}: {error.strerror}", exits.FAILED) from None
