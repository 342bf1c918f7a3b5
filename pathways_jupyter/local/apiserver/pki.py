"""The certificate of the API server: clients send a bearer token only over TLS."""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from pathlib import Path


def server_context(directory: Path) -> ssl.SSLContext:
    """Return the server's TLS context, with a certificate for loopback addresses that is its own authority.

    Certificate (``ca.crt``) and key are created in `directory` at the first call.
    """
    certificate, key = directory / "ca.crt", directory / "ca.key"
    if not (certificate.exists() and key.exists()):
        _make(certificate, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _make(certificate_file: Path, key_file: Path) -> None:
    # Imported here: only the daemon has the package, and only a new cluster needs it.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pathways-local")])
    # Valid also after this machine's clock was set back.
    begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=30)
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", "::1")]
    hosts = [x509.DNSName("localhost"), x509.DNSName("kubernetes.default.svc")]
    usage = dict.fromkeys(
        (
            *("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
            *("crl_sign", "encipher_only", "decipher_only"),
        ),
        False,
    )
    # An authority without usages to sign with is refused by strict clients (Python 3.13).
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, key_cert_sign=True, **usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        .add_extension(x509.SubjectAlternativeName([*hosts, *addresses]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    for path, data in ((certificate_file, certificate.public_bytes(pem)), (key_file, private)):
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
