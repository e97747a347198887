"""Commands from another host: what they are told by options, environment and client file, and what of it is not taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from escli import exits
from escli import remote as remote_module
from escli.admin import esctl
from escli.api import Sockets, find_endpoint
from escli.endpoint import Endpoint
from escli.failures import CommandFailed
from escli.option_table import rows_of
from escli.options import Parser
from escli.remote import Remote
from escli.user import esqueue, esrun
from eslurm.api.grpc_client import GrpcClient
from eslurm.api.tokens import Claims, seal_token
from eslurm.compat.errors import OptionError
from eslurm.core.model.job import Principal
from eslurm.ports.api import ApiRefused, ApiUnreachable, Status
from eslurm.security.site_keys import KeyRecord, SiteKeys
from eslurm.transport.tls import Tls
from eslurm.v1 import controller_pb2 as pb
from tests.support.certificates import KEPT, place

ADA = Principal("ada", 4711, 4711)
END_US = 1_790_000_000_000_000
SITE = SiteKeys("c", 1, (KeyRecord(bytes(32), "signing", 1),))


def token_of(who: Principal, expires_us: int = END_US) -> str:
    return seal_token(SITE, Claims(bytes(16), "c", who, "submit", 1, expires_us))


def write_token(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host without a cluster, where ada has her token in the usual place."""
    for name in ("ESLURM_SOCKET", "ESLURM_STATE_DIR", "ESLURM_REMOTE", "ESLURM_TOKEN_FILE", "ESLURM_TLS_CA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("escli.api.SYSTEM_SOCKET", str(tmp_path / "run" / "esctld.sock"))
    monkeypatch.setattr(remote_module, "SYSTEM_DIRECTORY", str(tmp_path / "etc"))
    write_token(tmp_path / ".config" / "eslurm" / "token", token_of(ADA))
    return tmp_path


class Client:
    """In the place of `GrpcClient`: remembers how it was made, and says what it is told to."""

    made: list[Client]
    say: Callable[[Client, str], Any]

    def __init__(
        self, endpoints: Sequence[str], token: str, tls: Tls | None, _patience_s: float, _on_refused: object
    ) -> None:
        self.endpoints = tuple(endpoints)
        self.path = self.endpoints[0]
        self.token = token
        self.tls = tls
        self.requests: list[Any] = []
        self.request_ids: list[bytes | None] = []
        Client.made.append(self)

    def call(self, method: Any, request: Any, _timeout_s: float, request_id: bytes | None) -> Any:
        self.requests.append(request)
        self.request_ids.append(request_id)
        return Client.say(self, method.name)

    def close(self) -> None:
        """As if."""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    """The clients that a command makes."""
    monkeypatch.setattr("eslurm.api.grpc_client.GrpcClient", Client)
    Client.made = []
    Client.say = lambda _client, _method: pb.JobsReply()
    return Client.made


def way_of(line: str, environ: Mapping[str, str] | None = None) -> Endpoint:
    return find_endpoint(Parser(rows_of("esqueue")).parse(line.split()), environ or {})


def client_file(directory: Path, text: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "client.toml"
    path.write_text(text)
    return path


# ---- where to ----


def test_options_come_before_the_environment(home: Path, made: list[Client]) -> None:
    other = write_token(home / "other", token_of(Principal("bob", 4712, 4712)))
    environ = {"ESLURM_REMOTE": "a:1, b:2,", "ESLURM_TLS_CA": str(KEPT / "ca.pem")}
    way_of("", environ).client(1.0, print)
    environ["ESLURM_TOKEN_FILE"] = str(other)
    way_of("", environ).client(1.0, print)
    way_of(f"--remote c:3 --tls-ca {KEPT / 'other-ca.pem'}", environ | {"ESLURM_SOCKET": "/s"}).client(
        1, print
    )
    way_of(f"--token-file {home}/.config/eslurm/token", environ).client(1.0, print)
    assert [one.endpoints for one in made] == [("a:1", "b:2"), ("a:1", "b:2"), ("c:3",), ("a:1", "b:2")]
    bobs = other.read_text().strip()
    assert [one.token for one in made] == [token_of(ADA), bobs, bobs, token_of(ADA)]
    assert [one.tls.files.ca.name for one in made if one.tls] == [
        "ca.pem",
        "ca.pem",
        "other-ca.pem",
        "ca.pem",
    ]


def test_within_a_job_its_own_door_is_used(home: Path) -> None:
    environ = {"ESLURM_SOCKET": "/run/door.sock", "SLURM_JOB_ID": "7", "ESLURM_REMOTE": "a:1"}
    assert isinstance(way_of("", environ), Sockets)
    assert isinstance(way_of("--remote a:1", environ), Remote)


def test_a_client_file_is_read_when_nothing_else_is_there(home: Path, made: list[Client]) -> None:
    with pytest.raises(CommandFailed, match=r"no cluster here .* or --remote its controllers"):
        way_of("")
    write_token(home / "etc" / "ada.token", token_of(ADA))
    files = place(home / "etc", required=True)
    assert files.certificate and files.key
    text = 'controllers = ["a:1", "b:2"]\ntoken_file = "ada.token"\n[tls]\nca = "authorities.pem"\n'
    text += f'certificate = "{files.certificate.name}"\nkey = "{files.key.name}"\nname = "n"\n'
    client_file(home / "etc", text)
    way_of("").client(1.0, print)
    (one,) = made
    assert one.endpoints == ("a:1", "b:2") and one.tls is not None
    shown = one.tls.files
    assert (shown.ca, shown.certificate, shown.key, shown.name) == (
        files.ca,
        files.certificate,
        files.key,
        "n",
    )
    # The user's own comes first, and a cluster on this host before both.
    client_file(home / ".config" / "eslurm", 'controllers = ["127.0.0.1:3"]')
    assert way_of("").first == "127.0.0.1:3"
    state = home / ".local" / "state" / "eslurm"
    state.mkdir(parents=True)
    (state / "esctld.sock").touch()
    assert way_of("").first == str(state / "esctld.sock")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("controllers = []", "client.toml: controllers: names no controller"),
        ('controllers = ["ctl1"]', "client.toml: controllers: 'ctl1' is not HOST:PORT"),
        ('controlers = ["a:1"]', "unknown field `controlers`"),
        ("controllers = 7", "Expected `array`"),
        ("controllers", "client.toml: "),
    ],
)
def test_a_client_file_that_makes_no_sense(home: Path, text: str, told: str) -> None:
    client_file(home / "etc", text)
    with pytest.raises(CommandFailed, match=r"client\.toml") as failure:
        way_of("")
    assert told in failure.value.text and failure.value.code == exits.USAGE


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--remote a:1 --socket /s", "--remote: 'a:1' is another way than --socket"),
        ("--socket {here} --token-file t", "--token-file: 't' is for controllers of another host"),
        ("--socket {here} --tls-ca t", "--tls-ca: 't' is for controllers of another host"),
        ("--remote ctl1", "--remote: 'ctl1' is not HOST:PORT: write e.g. ctl1:7400,ctl2:7400"),
        ("--remote ,", "--remote: names no controller"),
    ],
)
def test_words_that_do_not_go_together(home: Path, line: str, told: str) -> None:
    (home / "s").touch()
    with pytest.raises((OptionError, CommandFailed)) as failure:
        way_of(line.format(here=home / "s"))
    assert str(failure.value).startswith(told)


# ---- with what ----


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_token_that_others_may_read_is_not_sent(home: Path, mode: int) -> None:
    path = write_token(home / "t", token_of(ADA))
    path.chmod(mode)
    with pytest.raises(CommandFailed, match=f"{path} is open to others, so it is not used: chmod 600 {path}"):
        way_of(f"--remote a:1 --token-file {path}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no token"),
        ("two words", "holds no token"),
        ("\u00e4", "holds no token"),
        (None, "does not exist"),
    ],
)
def test_files_without_a_token(home: Path, text: str | None, told: str) -> None:
    if text is not None:
        write_token(home / "t", text)
    with pytest.raises(CommandFailed, match=told) as failure:
        way_of(f"--remote a:1 --token-file {home / 't'}")
    assert failure.value.code == exits.USAGE


def test_what_cannot_be_used_is_one_line(
    home: Path, made: list[Client], capsys: pytest.CaptureFixture[str]
) -> None:
    assert esqueue.main(["--remote", "a:1", "--tls-ca", str(home / "none")]) == exits.USAGE
    told = capsys.readouterr().err
    assert told == f"esqueue: TLS authorities {home / 'none'} cannot be read: No such file or directory\n"
    with pytest.raises(CommandFailed, match="ESLURM_TLS_KEY is missing"):
        way_of("--remote a:1", {"ESLURM_TLS_CERTIFICATE": "host.pem"})


def test_a_token_goes_to_no_other_host_unencrypted(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert esqueue.main(["--remote", "192.0.2.1:6820"]) == exits.USAGE
    told = capsys.readouterr().err
    assert told == (
        "esqueue: a token is sent to 192.0.2.1:6820 over TLS only: name its authorities (--tls-ca)\n"
    )


# ---- what comes of it ----


def test_me_is_whom_the_token_names(home: Path, made: list[Client]) -> None:
    assert esqueue.main(["--remote", "127.0.0.1:1", "--me"]) == exits.OK
    assert [request.user for request in made[0].requests] == ["ada"]


def test_who_is_refused_hears_which_token_it_was(
    home: Path, made: list[Client], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_client: Client, _method: str) -> Any:
        raise ApiRefused(Status.UNAUTHENTICATED, "the token has expired; ask an operator for a new one")

    Client.say = refuse
    monkeypatch.setattr("escli.clock.local_offset_s", lambda _utc_s: 0)
    assert esqueue.main(["--remote", "127.0.0.1:1"]) == exits.FAILED
    told = capsys.readouterr().err
    path = home / ".config" / "eslurm" / "token"
    assert told == (
        "esqueue: the token has expired; ask an operator for a new one"
        f" ({path}: ada at cluster c until 2026-09-21T14:13:20, scope submit)\n"
    )


def test_a_token_that_was_renewed_meanwhile_is_taken(home: Path, made: list[Client]) -> None:
    fresh = token_of(ADA, END_US + 1)

    def refuse_old(client: Client, _method: str) -> Any:
        if client.token == fresh:
            return pb.JobsReply()
        write_token(home / ".config" / "eslurm" / "token", fresh)
        raise ApiRefused(Status.UNAUTHENTICATED, "the token has expired")

    Client.say = refuse_old
    assert esqueue.main(["--remote", "127.0.0.1:1"]) == exits.OK
    assert [client.token == fresh for client in made] == [False, True]


def test_a_change_stays_the_same_one_with_a_renewed_token(home: Path, made: list[Client]) -> None:
    """A try before it may have arrived."""

    def refuse_once(client: Client, _method: str) -> Any:
        if client is not made[0]:
            return pb.ChangeReply(count=1)
        write_token(home / ".config" / "eslurm" / "token", token_of(ADA, END_US + 1))
        raise ApiRefused(Status.UNAUTHENTICATED, "the token has expired", maybe_done=True)

    Client.say = refuse_once
    assert esctl.main(["hold", "7", "--remote", "127.0.0.1:1"]) == exits.OK
    (first,), (second,) = (client.request_ids for client in made)
    assert first == second and first is not None and len(first) == 16


@pytest.mark.parametrize("status", [Status.UNAUTHENTICATED, Status.RESOURCE_EXHAUSTED])
def test_who_is_sent_away_at_the_second_try_does_not_know_of_the_first(
    home: Path, made: list[Client], status: Status, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_client: Client, _method: str) -> Any:
        raise ApiRefused(status, "not now", maybe_done=True)

    Client.say = refuse
    assert esctl.main(["hold", "7", "--remote", "127.0.0.1:1"]) == exits.UNKNOWN_OUTCOME
    assert "look before you repeat it" in capsys.readouterr().err
    assert esqueue.main(["--remote", "127.0.0.1:1"]) == exits.FAILED


def test_what_waiting_does_not_help_is_not_waited_for(
    home: Path, made: list[Client], capsys: pytest.CaptureFixture[str]
) -> None:
    def misfit(_client: Client, _method: str) -> Any:
        raise ApiUnreachable("a:1: the certificate there is for other names", is_final=True)

    Client.say = misfit
    assert esqueue.main(["--remote", "127.0.0.1:1"]) == exits.UNREACHABLE
    assert capsys.readouterr().err == "esqueue: a:1: the certificate there is for other names\n"
    assert len(made) == 1


def test_tasks_are_started_where_nodes_can_answer(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ESLURM_REMOTE", "127.0.0.1:1")
    assert esrun.main(["--jobid", "7", "hostname"]) == exits.USAGE
    assert "from another host use `essubmit --wait`" in capsys.readouterr().err


def test_the_real_client_is_made_as_the_way_makes_it(home: Path) -> None:
    with way_of("--remote 127.0.0.1:1,127.0.0.1:2").client(1.0, print) as client:
        assert isinstance(client, GrpcClient) and client.path == "127.0.0.1:1"
