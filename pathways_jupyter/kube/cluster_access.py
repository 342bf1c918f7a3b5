"""The address of an API server with its TLS settings and credentials, however it was found."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

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
