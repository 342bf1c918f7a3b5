"""Credentials of the API: the server's certificate, users' kubeconfigs, and the tokens of pods' service accounts."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import os
import ssl
from pathlib import Path

from pathways_jupyter.base import runtime_files
from pathways_jupyter.local.apiserver.access import Users
from pathways_jupyter.local.apiserver.resources import Object
from pathways_jupyter.local.directory import CONTEXT

POD_NAME, POD_UID = "authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid"
"""Under these keys, a real cluster too says to which pod a token belongs."""


def server_context(directory: Path) -> ssl.SSLContext:
    """Return the server's TLS context, with a certificate for loopback addresses that is its own authority.

    Clients send their tokens over TLS only.
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


def pod_account(
    pod: Object, account: Object | None, *, directory: Path, url: str, ca: Path, users: Users
) -> dict[str, str]:
    """Return the variables by which a pod reaches the API as its service account.

    There is no token where the pod or the account opts out, or the account is gone.

    A real pod finds its token, the certificate authority and its namespace below ``/var/run/secrets``, a place that
    all pods of one machine would share; here the same three files are in the pod's own `directory`, and a kubeconfig
    names them. The token belongs to this pod, and has to be revoked once the pod is gone.
    """
    host, _, port = url.removeprefix("https://").partition(":")
    variables = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    metadata, opted = pod["metadata"], "automountServiceAccountToken"
    if account is None or pod["spec"].get(opted, account.get(opted)) is False:
        return variables
    namespace, name = account["metadata"]["namespace"], account["metadata"]["name"]
    token = users.add_account(namespace, name, {POD_NAME: (metadata["name"],), POD_UID: (metadata["uid"],)})
    files = directory / "serviceaccount"
    files.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file, content in (("token", token), ("ca.crt", ca.read_text("ascii")), ("namespace", namespace)):
        runtime_files.write(files / file, content)
    kubeconfig = files / "kubeconfig"
    write_kubeconfig(kubeconfig, url, ca, user=name, namespace=namespace, tokenFile=str(files / "token"))
    return {**variables, "KUBECONFIG": str(kubeconfig)}


def write_kubeconfig(
    path: Path, url: str, ca: Path, *, user: str, namespace: str = "default", **credentials: str
) -> None:
    """Write a kubeconfig with one context, readable by its owner alone.

    Args:
      credentials: The user's, e.g. ``token``.
    """
    authority = base64.b64encode(ca.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": {"server": url, "certificate-authority-data": authority}}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": user, "namespace": namespace}}],
        "current-context": CONTEXT,
    }
    # Every YAML parser reads JSON, and this project's own loader reads JSON without importing a YAML parser.
    runtime_files.write(path, json.dumps(config, indent=2) + "\n")
