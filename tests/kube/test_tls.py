"""Certificates of servers and clients, and the pod's own credentials, against servers and clients that check them."""

import asyncio
import base64
import contextlib
import datetime
import ipaddress
import json
import ssl
import stat
import sys

import kinds
import kubeconfigs
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pathways_jupyter.base.errors import ApiError, ClusterError, ConfigError, Unreachable
from pathways_jupyter.kube import auth, execute, objects, pods
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import PODS
from pathways_jupyter.kube.watch import watch
from pathways_jupyter.tunnel import portforward
from pathways_jupyter.tunnel.carrier import PodPort

DEADLINE = 60.0

_SIGNS = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """Signs certificates for one test session."""

    def __init__(self):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._build("ca", self.key, ca=True)

    def _build(self, name, key, *, ca=False, host="127.0.0.1", begin=-1, end=1):
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")])
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=-begin))
            .not_valid_after(now + datetime.timedelta(days=end))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        # Python 3.13 requires these when it is the server.
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        if ca:
            builder = builder.add_extension(_SIGNS, critical=True)
        else:
            is_address = host[0].isdigit()
            known = x509.IPAddress(ipaddress.ip_address(host)) if is_address else x509.DNSName(host)
            builder = builder.add_extension(x509.SubjectAlternativeName([known]), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    @property
    def pem(self):
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def sign(self, name, **about):
        """Return certificate and key as PEM.

        Args:
          about: Its `host`, and the days from now at which it begins and ends to be valid.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return self._build(name, key, **about).public_bytes(serialization.Encoding.PEM), private


@pytest.fixture(scope="module")
def authority():
    return Authority()


async def _watch(client):
    await anext(watch(client, PODS, namespace="default"))


async def _follow(client):
    await anext(pods.logs(client, "p", namespace="default", follow=True, patience=DEADLINE))


async def _forward(client):
    forward = await portforward.listen(PodPort(client, "default", "p", 7000))
    try:
        await forward.prepare()
    finally:
        await forward.close()


REQUESTS = {
    "get": lambda client: objects.get(client, PODS, "p", namespace="default"),
    "create": lambda client: objects.create(client, PODS, {"metadata": {"name": "p"}}, namespace="default"),
    "watch": _watch,
    "log": _follow,
    "run": lambda client: execute.run(client, "p", ["true"], namespace="default"),
    "exec": lambda client: execute.execute(client, "p", ["true"], namespace="default"),
    "port-forward": _forward,
}
"""Each kind of request and of stream."""


@contextlib.asynccontextmanager
async def presenting(certificate, key, directory):
    """Show a certificate, and refuse every request; yields the port, and what was received."""
    path = directory / "server.pem"
    path.write_bytes(certificate + key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path)
    received = bytearray()

    async def refuse(reader, writer):
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                received.extend(data)
                if b"\r\n\r\n" in data:
                    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    listener = await asyncio.start_server(refuse, "127.0.0.1", 0, ssl=context)
    yield listener.sockets[0].getsockname()[1], received
    listener.close()


@pytest.mark.parametrize("ask", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize(
    ("about", "sentence", "hint"),
    [
        ({"authority": "another"}, "does not match the kubeconfig: ", "credentials of the cluster again"),
        ({"host": "127.0.0.2"}, "is for another name: .*127.0.0.1", "tls-server-name"),
        ({"host": "x.example"}, "is for another name: .*127.0.0.1", "tls-server-name"),
        ({"begin": -2, "end": -1}, "has expired", "renew"),
        ({"begin": 1, "end": 2}, "is not valid yet", "clock"),
    ],
    ids=["authority", "address", "host", "expired", "early"],
)
async def test_nothing_is_sent_to_a_server_with_a_wrong_certificate(authority, tmp_path, ask, about, sentence, hint):
    signer = Authority() if about.get("authority") else authority
    pair = signer.sign("server", **{key: value for key, value in about.items() if key != "authority"})
    async with presenting(*pair, tmp_path) as (port, received), asyncio.timeout(DEADLINE):
        url = f"https://127.0.0.1:{port}"
        async with load(tmp_path, url, authority, {"token": "secret"}) as client:
            with pytest.raises(Unreachable, match=f"The certificate of {url} {sentence}") as raised:
                await ask(client)
    assert hint in raised.value.hint
    assert not received


@pytest.mark.parametrize("ask", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize(
    ("host", "settings"),
    [
        ("127.0.0.1", {}),
        ("x.example", {"tls-server-name": "x.example"}),
        ("x.example", {"insecure-skip-tls-verify": True}),
    ],
    ids=["address", "name", "unverified"],
)
async def test_a_server_with_the_right_certificate_gets_the_request(authority, tmp_path, ask, host, settings):
    async with (
        presenting(*authority.sign("server", host=host), tmp_path) as (port, received),
        asyncio.timeout(DEADLINE),
    ):
        url = f"https://127.0.0.1:{port}"
        async with load(tmp_path, url, authority, {"token": "secret"}, **settings) as client:
            with pytest.raises(ApiError) as raised:
                await ask(client)
    assert raised.value.status == 404
    assert b"Bearer secret" in received


@contextlib.asynccontextmanager
async def server(authority, directory):
    """Answer each request with the name in the client's certificate, and reject clients without one."""
    certificate, key = authority.sign("server")
    for name, content in [("ca.crt", authority.pem), ("server.pem", certificate + key)]:
        (directory / name).write_bytes(content)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=directory / "ca.crt")
    context.load_cert_chain(directory / "server.pem")
    context.verify_mode = ssl.CERT_REQUIRED

    async def answer(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                subject = dict(pair for (pair,) in writer.get_extra_info("peercert")["subject"])
                body = json.dumps({"you": subject["commonName"]}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    yield f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    listener.close()


def load(directory, url, authority, user, **settings):
    cluster = {"server": url, **settings}
    # Which kubectl refuses beside insecure-skip-tls-verify.
    if "insecure-skip-tls-verify" not in settings:
        cluster["certificate-authority-data"] = base64.b64encode(authority.pem).decode()
    return Client(auth.load(kubeconfigs.write(directory / "config", cluster, user)))


@pytest.mark.parametrize("inline", [True, False])
async def test_a_client_certificate_is_shown(authority, tmp_path, inline):
    certificate, key = authority.sign("jane")
    if inline:
        encoded = [base64.b64encode(part).decode() for part in (certificate, key)]
        user = {"client-certificate-data": encoded[0], "client-key-data": encoded[1]}
    else:
        (tmp_path / "jane.crt").write_bytes(certificate)
        (tmp_path / "jane.key").write_bytes(key)
        user = {"client-certificate": "jane.crt", "client-key": "jane.key"}
    async with server(authority, tmp_path) as url, load(tmp_path, url, authority, user) as client:
        assert await client.get("/") == {"you": "jane"}


async def test_a_certificate_that_a_plugin_renews_is_on_the_next_connection(authority, tmp_path):
    # Each is over in a minute, so that the plugin runs for each request.
    soon = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=30)).isoformat()
    for name in ("robot-1", "robot-2"):
        certificate, key = (part.decode() for part in authority.sign(name))
        status = {"clientCertificateData": certificate, "clientKeyData": key, "expirationTimestamp": soon}
        (tmp_path / name).write_text(json.dumps({"status": status}))
    plugin = tmp_path / "plugin"
    plugin.write_text(
        f"#!{sys.executable}\nimport pathlib\nhere = pathlib.Path({str(tmp_path)!r})\n"
        "names = sorted(here.glob('robot-*'))\nprint(names[0].read_text())\nlen(names) > 1 and names[0].unlink()"
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin"}}
    async with server(authority, tmp_path) as url, load(tmp_path, url, authority, user) as client:
        assert [await client.get("/") for _ in range(3)] == [{"you": "robot-1"}, {"you": "robot-2"}, {"you": "robot-2"}]


async def test_a_server_that_wants_a_certificate_is_not_asked_for_ever(authority, tmp_path):
    async with server(authority, tmp_path) as url, load(tmp_path, url, authority, {}) as client:
        client._retries._patience = 1e6
        with pytest.raises(ClusterError):
            await client.get("/")


async def test_a_pods_own_credentials_open_its_cluster(bench, tmp_path):
    directory = tmp_path / "serviceaccount"
    directory.mkdir()
    (directory / "ca.crt").write_bytes(bench.server.ca.read_bytes())
    (directory / "token").write_text(bench.server.users.add("system:serviceaccount:research:default"))
    (directory / "namespace").write_text("research\n")
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(bench.server.port)}
    cluster = auth.in_cluster(environ, directory=directory)
    assert cluster.namespace == "research"
    async with Client(cluster) as client:
        assert await objects.get(client, kinds.NAMESPACES, "default")


def test_an_older_kind_of_login_is_refused_with_what_replaced_it(tmp_path):
    path = tmp_path / "config"
    provider = {"name": "oidc", "config": {"idp-issuer-url": "https://issuer.example"}}
    kubeconfigs.write(path, {"server": "https://x.example"}, {"auth-provider": provider})
    with pytest.raises(ConfigError, match=r"auth-provider of user .* is not supported: log in with an exec plugin"):
        auth.load(str(path))
