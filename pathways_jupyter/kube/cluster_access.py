"""The address of an API server with its TLS settings and credentials, however it was found."""

from __future__ import annotations

import contextlib
import ipaddress
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.kube.credentials import Credentials
from pathways_jupyter.kube.kubeconfig import REFETCH


@dataclass(frozen=True)
class Cluster:
    """An API server, and everything needed to connect to it.

    Attributes:
      name: For messages: the context's name, or ``in-cluster``.
      server: Its base URL, without a trailing slash.
      namespace: The context's default namespace.
      credentials: Source of each request's ``Authorization`` header.
      ssl: TLS settings; None when `server` is plain HTTP.
      server_name: Name in the server's certificate, where it is not the URL's host.
      proxy: URL of an HTTP proxy to go through, or empty.
      headers: Sent with every request (impersonation); a name may come more than once.
      identity: Digest of the kubeconfig's entries and of the certificates that they name: with the same one, a
        connection is the same too. Empty without a kubeconfig.
    """

    name: str
    server: str
    namespace: str
    credentials: Credentials
    ssl: ssl.SSLContext | None = None
    server_name: str = ""
    proxy: str = ""
    headers: Sequence[tuple[str, str]] = ()
    identity: str = ""


def tls(authority: bytes = b"", *, verify: bool = True) -> ssl.SSLContext:
    """Return TLS settings that trust only `authority` (PEM), or the system's authorities when it is empty.

    Raises:
      ConfigError: `authority` is not a certificate.
    """
    try:
        context = ssl.create_default_context(cadata=authority.decode("ascii") if authority else None)
    except (ssl.SSLError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError("The cluster's certificate authority is not a PEM certificate.", hint=REFETCH) from error
    # Many clusters' own authorities lack extensions that Python 3.13 and later require by default.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def url_problem(text: str, schemes: tuple[str, ...] = ()) -> str:
    """Return why `text` is not the URL of a server, as the end of a sentence; empty when it is one."""
    try:
        url = urlsplit(text)
        host, port = url.hostname, url.port
    except ValueError as error:
        return str(error)
    if " " in text or not host:
        return "it names no host"
    if port == 0:
        return "port 0 cannot be connected to"
    if schemes and url.scheme not in schemes:
        return f"it does not begin with {' or '.join(f'{scheme}://' for scheme in schemes)}"
    return ""


def proxy_problem(text: str) -> tuple[str, str]:
    """Return why `text` cannot be the proxy of an API server, as a sentence's end, and what to do; empty if it can.

    kubectl takes SOCKS proxies too.
    """
    if problem := url_problem(text):
        return f"which is not a URL: {problem}", ""
    scheme = urlsplit(text).scheme
    if scheme.startswith("socks"):
        return "a SOCKS proxy, which is not supported", (
            "Use an HTTP proxy. Or forward the API server's port, ssh -L 6443:SERVER:443 GATEWAY, and set server: "
            "https://127.0.0.1:6443 and tls-server-name: SERVER in a kubeconfig without proxy-url."
        )
    return ("", "") if scheme in {"http", "https"} else ("which does not begin with http:// or https://", "")


def proxy_of_environment(server: str, environ: Mapping[str, str]) -> str:
    """Return the URL of the HTTP proxy that the environment names for `server`; empty for a direct connection.

    Raises:
      ConfigError: It is not a URL.
    """
    proxy = environ.get("HTTPS_PROXY") or environ.get("https_proxy") or ""
    exempt = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    if not proxy or not server.startswith("https://") or _is_exempt(urlsplit(server), exempt):
        return ""
    # Like curl and kubectl, read a proxy without a scheme as HTTP.
    url = proxy if "://" in proxy else f"http://{proxy}"
    problem, hint = proxy_problem(url)
    if problem:
        raise ConfigError(f"HTTPS_PROXY is {proxy!r}, {problem}.", hint=hint or "Fix the variable, or unset it.")
    return url


def _is_exempt(server: SplitResult, exempt: str) -> bool:
    """Return whether a server is reached without the proxy, by the rules of Go's programs, and so of kubectl.

    This machine always is. An entry of NO_PROXY is ``*``, a network, or an address or a name, both with a port or for
    all ports: ``x.test`` stands for its subdomains too, ``.x.test`` and ``*.x.test`` only for those.
    """
    host, port = (server.hostname or "").lower(), server.port or 443
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    for entry in filter(None, (each.strip().lower() for each in exempt.split(","))):
        if entry == "*":
            return True
        if "/" in entry:
            with contextlib.suppress(ValueError):
                if address is not None and address in ipaddress.ip_network(entry, strict=False):
                    return True
            continue
        name, colon, number = entry.rpartition(":")
        if not colon or _address(entry) is not None:
            name, number = entry, ""
        if number and number != str(port):
            continue
        name = name.removeprefix("[").removesuffix("]").removeprefix("*")
        same = _address(name)
        is_meant = name == host or host.endswith(f".{name.removeprefix('.')}") if same is None else same == address
        if name and is_meant:
            return True
    return False


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
