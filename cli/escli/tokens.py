"""`esctl token USER`: makes the token by which a user's commands on other hosts are known to the cluster.

Needs no controller but the cluster's key, so it is for who may read that. Invariant: a token is written nowhere where
others could read it.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from escli import clock, exits, program
from escli.door import state_dir
from escli.failures import CommandFailed
from eslurm.compat.errors import OptionError
from eslurm.compat.lengths import length_text, parse_length
from eslurm.compat.moments import format_moment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from escli.options import Words
    from eslurm.core.job.model import Principal

TOKEN_S = 8 * 3600
TOKEN_MAX_S = 7 * 86_400
SYSTEM_CONFIG = "/etc/eslurm/eslurm.toml"
SYSTEM_STATE = "/var/lib/eslurm"
CONFIG = "eslurm.toml"
KEY_BYTES_MIN = 16


class _Issuer(NamedTuple):
    """The cluster that vouches for tokens."""

    cluster: str
    key: bytes


def token(words: Sequence[str], given: Words) -> int:
    """`esctl token USER [--for TIME] [--output FILE] [--json]`: the token alone on standard output, or in a file."""
    if not words:
        raise OptionError("token", "", "needs a user", "use e.g. esctl token ada --for 8h > token")
    program.no_more_words(words[1:])
    length_s = _length_s(given)
    bearer = _bearer(words[0])
    issuer = _issuer(given, os.environ)

    from eslurm.rpc.signing import Keyring
    from eslurm.rpc.tokens import mint_token

    expires_us = clock.now_us() + length_s * 1_000_000
    made = mint_token(Keyring({1: issuer.key}), issuer.cluster, bearer, expires_us)
    path = given.text("output")
    if path:
        _write(Path(path), made, bearer)
    if given.has("json"):
        import json

        values = {"user": bearer.name, "uid": bearer.uid, "cluster": issuer.cluster, "expires_us": expires_us}
        program.say(json.dumps(values | ({"file": path} if path else {"token": made})))
    elif path:
        until = format_moment(expires_us, clock.local_offset_s)
        program.say(f"{path}: {bearer.name} at cluster {issuer.cluster} until {until}")
    else:
        program.say(made)
    return exits.OK


def _length_s(given: Words) -> int:
    text, option = given.text("for"), given.spelling("for")
    if not given.has("for"):
        return TOKEN_S
    seconds = parse_length(text, option)
    if not 0 < seconds <= TOKEN_MAX_S:
        raise OptionError(
            option,
            text,
            f"is not between 1s and {length_text(TOKEN_MAX_S)}, and a token cannot be taken back",
            f"use e.g. --for {length_text(TOKEN_MAX_S)}, and make another one then",
        )
    return seconds


def _bearer(name: str) -> Principal:
    try:
        entry = pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise OptionError(
            "USER", name, "is not known on this host", "use a name that `getent passwd NAME` finds"
        ) from None
    if entry.pw_uid == 0:
        raise OptionError(
            "USER",
            name,
            "gets no token: whoever holds it would be root on every node",
            "name an operator's own account (cluster.operators in the configuration)",
        )
    from eslurm.rpc.principals import look_up

    return look_up(entry.pw_uid, entry.pw_gid)


def _issuer(given: Words, environ: Mapping[str, str]) -> _Issuer:
    """Which cluster, and its key. The key is where the controller of the same configuration looks for it."""
    from eslurm.config import ConfigError, read_config

    own = Path(state_dir(environ))
    config_file = Path(given.text("config") or (own / CONFIG if (own / CONFIG).exists() else SYSTEM_CONFIG))
    try:
        config = read_config(config_file)
    except ConfigError as error:
        raise CommandFailed(
            exits.USAGE, f"{error}: make tokens on a controller's host, or name its --config and --key-file"
        ) from None
    is_own = config_file == own / CONFIG or bool(environ.get("ESLURM_STATE_DIR"))
    base = own if is_own else Path(SYSTEM_STATE)
    return _Issuer(config.cluster.name, _key(Path(given.text("key-file") or base / config.cluster.key_file)))


def _key(path: Path) -> bytes:
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise CommandFailed(
            exits.USAGE,
            f"the cluster's key {path} cannot be read: {error.strerror}: tokens are made by the administrator on a "
            "controller's host; another place is named with --key-file",
        ) from None
    if len(key) < KEY_BYTES_MIN:
        raise CommandFailed(exits.USAGE, f"{path} holds {len(key)} bytes, which is no cluster's key")
    return key


def _write(path: Path, made: str, bearer: Principal) -> None:
    """In the place of what was there; root gives it to the user, who could not read it otherwise."""
    if not _may_hold_file(path):
        raise OptionError(
            "--output",
            str(path),
            "is no file",
            "name one, or leave it out to have the token on standard output",
        )
    fresh = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    try:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, f"{made}\n".encode())
            os.fchmod(fd, 0o600)
            if os.geteuid() == 0:
                os.fchown(fd, bearer.uid, bearer.gid)
            os.replace(fresh, path)
        except OSError:
            os.unlink(fresh)
            raise
        finally:
            os.close(fd)
    except OSError as error:
        raise OptionError(
            "--output",
            str(path),
            f"cannot be written ({error.strerror})",
            "name a file in a directory of yours",
        ) from None


def _may_hold_file(path: Path) -> bool:
    """Whether a file can take its place: root's hand could put one in the place of a device."""
    if path.parent == Path("/dev"):
        return False
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return True
