"""An API server and how to talk to it: what every way of finding one comes to."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from pathways_jupyter.errors import ConfigError
from pathways_jupyter.kube.credentials import Credentials
from pathways_jupyter.kube.kubeconfig import REFETCH


@dataclass(frozen=True)
class Cluster:
    """An API server, and what it takes to talk to it.

    Attributes:
      name: What people call it: the context's name, or ``in-cluster``.
      server: Its base URL, without a trailing slash.
      namespace: The namespace that the context prefers.
      credentials: Where each request's ``Authorization`` comes from.
      ssl: TLS settings; None when `server` is plain HTTP.
      server_name: The name to expect in the server's certificate, where it is not the host's.
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
    """TLS settings that trust `authority` (PEM) alone, or the system's authorities when it is empty.

    Raises:
      ConfigError: `authority` is not a certificate.
    """
    try:
        context = ssl.create_default_context(cadata=authority.decode("ascii") if authority else None)
    except (ssl.SSLError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError("The cluster's certificate authority is not a PEM certificate.", hint=REFETCH) from error
    # Clusters make their own authorities, many of which lack extensions that newer Pythons insist on.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
