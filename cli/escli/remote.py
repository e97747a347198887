"""Calls to controllers on other hosts: gRPC over TLS with a token; endpoints, files and their sources.

Each of `VALUES` comes from its option, else from its environment variable, else from the client file, which is read only
when nothing else names a cluster. Invariant: a token that other users could have read is not sent.
"""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from escli import clock, exits
from escli.endpoint import Endpoint
from escli.failures import CommandFailed
from eslurm.compat.errors import OptionError
from eslurm.compat.moments import format_moment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from escli.options import Words
    from eslurm.api.client import ApiClient
    from eslurm.transport.tls import Tls

OWN_DIRECTORY = "~/.config/eslurm"
SYSTEM_DIRECTORY = "/etc/eslurm"
CLIENT_FILE = "client.toml"
TOKEN_FILE = f"{OWN_DIRECTORY}/token"
TOKEN_BYTES_MAX = 1 << 16


class TlsPart(msgspec.Struct, forbid_unknown_fields=True):
    """Files of a client file's [tls], relative to the client file."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    name: str = ""


class ClientFile(msgspec.Struct, forbid_unknown_fields=True):
    """`client.toml`."""

    controllers: list[str]
    token_file: str = ""
    tls: TlsPart = msgspec.field(default_factory=TlsPart)


class Remote(Endpoint):
    """Controllers over the network."""

    is_remote = True

    def __init__(self, endpoints: tuple[str, ...], token_file: Path, tls: TlsPart) -> None:
        self._endpoints = endpoints
        self._token_file = token_file
        self._token = token_in(token_file)
        self._files = tls
        self._tls: Tls | None = None

    @property
    def first(self) -> str:
        return self._endpoints[0]

    def client(self, patience_s: float, on_refused: Callable[[str], None]) -> ApiClient:
        # gRPC's own lines about handshakes would stand beside ours.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from eslurm.api.grpc_client import GrpcClient

        self._tls = self._tls or self._credentials()
        try:
            return GrpcClient(self._endpoints, self._token, self._tls, patience_s, on_refused)
        except ValueError as error:
            raise CommandFailed(exits.USAGE, str(error)) from None

    def _credentials(self) -> Tls | None:
        from eslurm.transport.tls import Tls, TlsError
        from eslurm.transport.tls_options import TlsFiles

        given = self._files
        if not given.ca:
            return None
        certificate = Path(given.certificate) if given.certificate else None
        key = Path(given.key) if given.key else None
        try:
            return Tls(TlsFiles(Path(given.ca), certificate, key, name=given.name, only_calls=True))
        except TlsError as error:
            raise CommandFailed(exits.USAGE, str(error)) from None

    def user(self) -> str:
        from eslurm.api.tokens import find_bearer

        bearer = find_bearer(self._token)
        if bearer is None:
            raise CommandFailed(exits.USAGE, f"token file {self._token_file} holds no token of eslurm")
        return bearer.user

    def about_caller(self) -> str:
        from eslurm.api.tokens import find_bearer

        bearer = find_bearer(self._token)
        if bearer is None:
            return f" ({self._token_file} holds no token of eslurm)"
        end = format_moment(bearer.expires_us, clock.local_offset_s)
        return f" ({self._token_file}: {bearer.user} at cluster {bearer.cluster} until {end}, scope {bearer.scope})"

    def has_changed(self) -> bool:
        before = self._token
        try:
            self._token = token_in(self._token_file)
        except CommandFailed:
            return False
        return self._token != before


def named_controllers(given: Words, environ: Mapping[str, str]) -> Remote:
    """The controllers of `--remote` or ESLURM_REMOTE."""
    if given.has("socket"):
        raise OptionError(
            given.spelling("remote"), given.text("remote"), "is another way than --socket", "give one of them"
        )
    text = given.text("remote") if given.has("remote") else environ["ESLURM_REMOTE"]
    where = given.spelling("remote") if given.has("remote") else "ESLURM_REMOTE"
    endpoints = tuple(word.strip() for word in text.split(",") if word.strip())
    return _remote(endpoints, where, given, environ, ClientFile([]))


def find_configured(given: Words, environ: Mapping[str, str]) -> Remote | None:
    """The controllers of this user's client file, or this host's; None when there is neither."""
    for directory in (OWN_DIRECTORY, SYSTEM_DIRECTORY):
        path = Path(directory).expanduser() / CLIENT_FILE
        try:
            raw = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise CommandFailed(exits.USAGE, f"{path} cannot be read: {error.strerror}") from None
        found = _parsed(raw, path)
        return _remote(tuple(found.controllers), f"{path}: controllers", given, environ, found)
    return None


def _parsed(raw: bytes, path: Path) -> ClientFile:
    try:
        found = msgspec.convert(tomllib.loads(raw.decode()), ClientFile)
    except (ValueError, RecursionError) as error:
        raise CommandFailed(exits.USAGE, f"{path}: {error}") from None
    base = path.parent
    found.token_file = _below(base, found.token_file)
    found.tls.ca = _below(base, found.tls.ca)
    found.tls.certificate = _below(base, found.tls.certificate)
    found.tls.key = _below(base, found.tls.key)
    return found


def _below(base: Path, text: str) -> str:
    return str(base / Path(text).expanduser()) if text else ""


def _remote(
    endpoints: tuple[str, ...], where: str, given: Words, environ: Mapping[str, str], file: ClientFile
) -> Remote:
    from eslurm.core.model.endpoint import split_endpoint

    if not endpoints:
        raise CommandFailed(exits.USAGE, f"{where}: names no controller: write e.g. ctl1:7400,ctl2:7400")
    for endpoint in endpoints:
        try:
            split_endpoint(endpoint)
        except ValueError:
            raise CommandFailed(
                exits.USAGE, f"{where}: {endpoint!r} is not HOST:PORT: write e.g. ctl1:7400,ctl2:7400"
            ) from None

    def chosen(option: str, variable: str, configured: str, default: str = "") -> str:
        text = given.text(option) if option and given.has(option) else environ.get(variable, "")
        return text or configured or default

    token_file = Path(chosen("token-file", "ESLURM_TOKEN_FILE", file.token_file, TOKEN_FILE)).expanduser()
    tls = TlsPart(
        ca=chosen("tls-ca", "ESLURM_TLS_CA", file.tls.ca),
        certificate=chosen("", "ESLURM_TLS_CERTIFICATE", file.tls.certificate),
        key=chosen("", "ESLURM_TLS_KEY", file.tls.key),
        name=chosen("", "ESLURM_TLS_NAME", file.tls.name),
    )
    if bool(tls.certificate) != bool(tls.key):
        missing = "ESLURM_TLS_KEY" if tls.certificate else "ESLURM_TLS_CERTIFICATE"
        raise CommandFailed(
            exits.USAGE, f"{missing} is missing: a certificate is shown with its key, or not at all"
        )
    return Remote(endpoints, token_file, tls)


def token_in(path: Path) -> str:
    """The token in a file that only this user can read. Raises CommandFailed."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISREG(mode) and mode & 0o077:
                raise CommandFailed(
                    exits.USAGE, f"token file {path} is open to others, so it is not used: chmod 600 {path}"
                )
            text = file.read(TOKEN_BYTES_MAX).strip()
    except FileNotFoundError:
        raise CommandFailed(
            exits.USAGE,
            f"token file {path} does not exist: ask an administrator for a token (`esctl token create` on a host of "
            "the cluster makes one) and put it there, or name another file with --token-file",
        ) from None
    except OSError as error:
        raise CommandFailed(exits.USAGE, f"token file {path} cannot be read: {error.strerror}") from None
    if not text or not text.isascii() or len(text.split()) != 1:
        raise CommandFailed(exits.USAGE, f"token file {path} holds no token: put one there, and nothing else")
    return text.decode()
