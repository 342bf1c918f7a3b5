"""The address of an API server with its TLS settings and credentials, however it was found."""

from __future__ import annotations

import contextlib
import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # Typeshed has no stub of it.

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
      headers: Sent with every request (impersonation).
    """

    name: str
    server: str
    namespace: str
    credentials: Credentials
    ssl: ssl.SSLContext | None = None
    server_name: str = ""
    proxy: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


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


def proxy_of_environment(server: str, environ: Mapping[str, str]) -> str:
    """Return the URL of the HTTP proxy that the environment names for `server`; empty for a direct connection.

    Raises:
      ConfigError: It is not a URL.
    """
    proxy = environ.get("HTTPS_PROXY") or environ.get("https_proxy") or ""
    host = urlsplit(server).hostname or ""
    if not proxy or not server.startswith("https://") or host == "localhost" or host.startswith("127."):
        return ""
    exempt = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    if proxy_bypass_environment(host, {"no": exempt}) or _is_in_networks(host, exempt):
        return ""
    # Like curl and kubectl, read a proxy without a scheme as HTTP.
    url = proxy if "://" in proxy else f"http://{proxy}"
    if problem := url_problem(url):
        raise ConfigError(
            f"HTTPS_PROXY is {proxy!r}, which is not a URL: {problem}.", hint="Fix the variable, or unset it."
        )
    return url


def _is_in_networks(host: str, exempt: str) -> bool:
    """Whether `host` is an address in one of the networks that NO_PROXY lists, such as ``10.0.0.0/8``."""
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        for each in filter(lambda name: "/" in name, exempt.split(",")):
            with contextlib.suppress(ValueError):
                if address in ipaddress.ip_network(each.strip(), strict=False):
                    return True
    return False
