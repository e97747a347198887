"""A process's certificate, key and authorities: read, tested together, and read anew when the files change.

Invariants: material for gRPC has passed a whole handshake, with itself where it is served; a new pair that does not pass
leaves the old one in force and is logged once; no timer runs, the files are checked when a connection is made or a metric
is read. Threads of gRPC call it too, at each handshake.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from eslurm.security.files import UnsafeFile, read_private
from eslurm.transport.tls_options import TlsFiles

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
SETTLED_S = 1.0
"""Files that were changed less long ago are left alone: the certificate may be there and its key not yet."""
FILE_BYTES_MAX = 1 << 20
_FLIGHTS_MAX = 8
_KEYS_SERVED = (
    bytes.fromhex("06092a864886f70d010101"),  # RSA
    bytes.fromhex("06072a8648ce3d020106082a8648ce3d030107"),  # P-256
    bytes.fromhex("06072a8648ce3d020106052b81040022"),  # P-384
)
"""Object identifiers of the kinds of keys that gRPC supports. The standard library supports more, such as Ed25519 and
P-521, so the trial handshake does not find those.
"""

_Stamp = tuple[tuple[int, int, int, int], ...]


class TlsError(Exception):
    """The files are unusable. The text names the file and the way out, in one line."""


class Material(NamedTuple):
    """Contents of files that fit together. Ends are seconds since the epoch."""

    certificate: bytes
    key: bytes
    ca: bytes
    certificate_end_s: float
    ca_end_s: float

    def ends(self) -> dict[str, float]:
        """End of each file's certificates; of several authorities, the first one."""
        found = {"ca": self.ca_end_s}
        if self.certificate:
            found["certificate"] = self.certificate_end_s
        return found


class Tls:
    """Credentials for one process. Raises `TlsError` when the files cannot be used at the start.

    Makes no gRPC object before it is asked for credentials, so a process may fork until then. `wall_s` and `clock_s` are
    clocks, for tests.
    """

    def __init__(
        self,
        files: TlsFiles,
        wall_s: Callable[[], float] = time.time,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.files = files
        self._wall_s = wall_s
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._stamp = _stamp(files)
        self._material = _load(files)
        self._look_at_s = clock_s() + LOOK_EVERY_S
        self._channel: grpc.ChannelCredentials | None = None
        self.revision = 1
        """Grows with each change of the files that was taken."""

    def server_credentials(self) -> grpc.ServerCredentials:
        """For a server; it follows the files from then on. Raises ValueError without a certificate for one."""
        if self.files.certificate is None or self.files.only_calls:
            raise ValueError("a server needs a certificate")
        with self._lock:
            shown = self._material

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal shown
            current = self.current()
            if current is shown:
                return None
            shown = current
            return _server_configuration(current)

        # None tells gRPC that nothing has changed; its types lack it.
        fetcher: Any = fetch
        return grpc.dynamic_ssl_server_credentials(
            _server_configuration(shown), fetcher, self.files.require_client_certificate
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Credentials for a new connection. The own certificate is shown to peers that ask for one."""
        self.current()
        with self._lock:
            if self._channel is None:
                material = self._material
                self._channel = grpc.ssl_channel_credentials(
                    material.ca, material.key or None, material.certificate or None
                )
            return self._channel

    def current(self) -> Material:
        """The material in force, after a check of the files if the last one was a while ago."""
        with self._lock:
            now_s = self._clock_s()
            if now_s >= self._look_at_s:
                self._look_at_s = now_s + LOOK_EVERY_S
                self._look()
            return self._material

    def ends(self) -> dict[str, float]:
        """By file (certificate, ca), the end of its certificates in seconds since the epoch."""
        return self.current().ends()

    def context(self) -> ssl.SSLContext:
        """A client's context of the present files, for diagnosis: names are not checked. Raises OSError."""
        found = client_context()
        found.load_verify_locations(self.files.ca)
        if self.files.certificate is not None:
            found.load_cert_chain(self.files.certificate, self.files.key, password=_no_password)
        return found

    def _look(self) -> None:
        stamp = _stamp(self.files)
        if stamp == self._stamp:
            return
        newest_s = max((one[-1] for one in stamp), default=0) / 1e9
        if 0 <= self._wall_s() - newest_s < SETTLED_S:
            return
        self._stamp = stamp
        try:
            material = _load(self.files)
        except TlsError as error:
            log.error("TLS goes on with the former certificate: %s", error)
            return
        if material == self._material:
            return
        self._material = material
        self._channel = None
        self.revision += 1
        log.info("TLS: %s is read anew: %s", self.files.certificate or self.files.ca, _until(material))


def _until(material: Material) -> str:
    end_s = min(material.ends().values())
    return f"good until {time.strftime('%Y-%m-%d', time.gmtime(end_s))}"


def _server_configuration(material: Material) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(material.key, material.certificate)], root_certificates=material.ca
    )


def _paths(files: TlsFiles) -> list[Path]:
    return [path for path in (files.certificate, files.key, files.ca) if path is not None]


def _stamp(files: TlsFiles) -> _Stamp:
    """The files' identities, which change when one was written or replaced."""
    found = []
    for path in _paths(files):
        try:
            seen = path.stat()
        except OSError:
            found.append((0, 0, 0, 0))
        else:
            found.append((seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns))
    return tuple(found)


# ---- reading and trying out ----


def _load(files: TlsFiles) -> Material:
    """The files' contents, if they fit together."""
    ca = _read(files.ca, "authorities")
    client = client_context()
    ends = _authorities(client, files.ca, ca)
    if files.certificate is None or files.key is None:
        return Material(b"", b"", ca, 0.0, min(ends))
    certificate = _read(files.certificate, "certificate")
    key = _read(files.key, "key")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _take_pair(server, files)
    if files.only_calls:
        # Whose word the server takes for its clients is not known here: the pair is its own authority.
        client = client_context()
        client.verify_mode = ssl.CERT_NONE
        _take_pair(client, files)
        server.verify_mode = ssl.CERT_REQUIRED
        server.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        _trust_pair(server, files)
    elif files.require_client_certificate:
        # The pair is shown as a client's, too: it has to be good for both.
        _take_pair(client, files)
        server.verify_mode = ssl.CERT_REQUIRED
        server.load_verify_locations(cadata=ca.decode("latin-1"))
    end_s = _try_out(server, client, files)
    if (_read(files.certificate, "certificate"), _read(files.key, "key")) != (certificate, key):
        raise TlsError(f"TLS certificate {files.certificate} was changed while it was read: try again")
    return Material(certificate, key, ca, end_s, min(ends))


def _read(path: Path, what: str) -> bytes:
    try:
        if what == "key":
            return read_private(path, may_group_read=True)
        with open(path, "rb") as file:
            return file.read(FILE_BYTES_MAX)
    except UnsafeFile as error:
        raise TlsError(f"TLS key {error}") from None
    except OSError as error:
        raise TlsError(f"TLS {what} {path} cannot be read: {error.strerror}") from None


def client_context() -> ssl.SSLContext:
    """A context for the diagnosis of certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # What the files are called and where this process listens is nothing to each other.
    context.check_hostname = False
    return context


def _authorities(client: ssl.SSLContext, path: Path, text: bytes) -> list[float]:
    """Make `client` trust them; returns the end of each."""
    try:
        client.load_verify_locations(cadata=text.decode("latin-1"))
    except (ssl.SSLError, ValueError):
        raise TlsError(f"TLS authorities {path} is not PEM: give certificates of authorities") from None
    ends = [
        float(ssl.cert_time_to_seconds(str(one["notAfter"])))
        for one in client.get_ca_certs()
        if "notAfter" in one
    ]
    if not ends:
        raise TlsError(f"TLS authorities {path} holds no authority's certificate (CA:TRUE)")
    return ends


def _no_password() -> str:
    raise ValueError("the key has a password")


def _take_pair(context: ssl.SSLContext, files: TlsFiles) -> None:
    assert files.certificate is not None
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            text = f"TLS key {files.key} is not the key of {files.certificate}: put the pair there together"
        else:
            text = (
                f"TLS certificate {files.certificate} and {files.key} are no certificate and key in PEM"
                f" ({error.reason or error}): write them anew"
            )
        raise TlsError(text) from None
    except ValueError:
        raise TlsError(
            f"TLS key {files.key} has a password, and a daemon cannot ask for it: write the key without one"
        ) from None
    except OSError as error:
        raise TlsError(f"TLS key {files.key} cannot be read: {error.strerror}") from None


def _trust_pair(context: ssl.SSLContext, files: TlsFiles) -> None:
    try:
        context.load_verify_locations(files.certificate)
    except OSError as error:
        raise TlsError(f"TLS certificate {files.certificate} cannot be read: {error.strerror}") from None


def _try_out(server_context: ssl.SSLContext, client_context: ssl.SSLContext, files: TlsFiles) -> float:
    """Let the pair shake hands with itself in memory; returns the end of its certificate."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(down, up)
    server = server_context.wrap_bio(up, down, server_side=True)
    try:
        waiting = [client, server]
        for _ in range(_FLIGHTS_MAX):
            waiting = [one for one in waiting if not _advance(one)]
        judge = server if files.only_calls else client
        certificate, encoded = judge.getpeercert(), judge.getpeercert(binary_form=True)
    except ssl.SSLCertVerificationError as error:
        if files.only_calls:
            text = (
                f"cannot be shown to a server: {error.verify_message}: get one that is in force and for clients"
                " (extendedKeyUsage clientAuth, or none)"
            )
        else:
            text = (
                f"is not accepted by {files.ca}: {error.verify_message}: get one that is in force and from an"
                " authority in that file"
            )
        raise TlsError(f"TLS certificate {files.certificate} {text}") from None
    except ssl.SSLError as error:
        raise TlsError(
            f"TLS certificate {files.certificate} cannot be used: {error.reason or error}: get another one"
        ) from None
    if waiting or not certificate or not encoded:
        raise TlsError(f"TLS certificate {files.certificate} cannot be used: the handshake does not end")
    if not any(kind in encoded for kind in _KEYS_SERVED):
        raise TlsError(
            f"TLS certificate {files.certificate} has a kind of key that gRPC does not take: get one with an EC key"
            " (P-256 or P-384) or an RSA key"
        )
    return float(ssl.cert_time_to_seconds(str(certificate["notAfter"])))


def _advance(end: ssl.SSLObject) -> bool:
    """Take one step of the handshake; returns whether this end is done."""
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
