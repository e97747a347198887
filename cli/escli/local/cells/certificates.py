"""Certificates of a federation's etcd: nothing else on the host can talk to it, although it listens on loopback, which every
user of the host can reach.

Two authorities, one for cells and one for members, so that a cell's certificate opens no member's port. Invariant: an
authority's key is never written anywhere; new certificates need new authorities.
"""

from __future__ import annotations

import datetime
import ipaddress

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS = 3650
_ROLES = {
    "server": (ExtendedKeyUsageOID.SERVER_AUTH,),
    "client": (ExtendedKeyUsageOID.CLIENT_AUTH,),
    "both": (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
}


class Pair(msgspec.Struct, frozen=True):
    """A certificate and its private key, as PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """An authority that lives as long as this object."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self._own = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self._certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(self._own, critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        """Its certificate."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str, role: str) -> Pair:
        """A certificate for 127.0.0.1 (`server`, `both`) or for a caller (`client`)."""
        key = ec.generate_private_key(ec.SECP256R1())
        above = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._own)
        builder = (
            _builder(_name(name), self._name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(_ROLES[role]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(above, critical=False)
        )
        if role != "client":
            loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
            names = x509.SubjectAlternativeName([loopback, x509.DNSName("localhost")])
            builder = builder.add_extension(names, critical=False)
        return Pair(
            builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
