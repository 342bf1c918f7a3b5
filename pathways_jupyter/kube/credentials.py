"""Sources of a request's credentials, and how to renew credentials that the API server refused.

A source is called before every request, so it must answer from memory. It runs a program or a network request only
when a credential is about to expire, or after the API server refused it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import ssl
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from pathways_jupyter.base.errors import ClusterError, ConfigError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import reason

MARGIN_SECONDS = 60.0
"""A credential that expires sooner is renewed before use, so that it does not expire on its way."""
CREDENTIAL_SECONDS = 30.0
"""Longest time that a plugin, or a token endpoint, may take."""
_MAX_CREDENTIAL_BYTES = 1024 * 1024
_KEPT_STDERR_BYTES = 16 * 1024
_CRASHES = (b"Traceback (most recent call last)", b"panic: ", b"error while loading shared libraries")
"""Parts of what a program prints that has crashed: no login helps."""
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class Credentials(Protocol):
    """A source of the ``Authorization`` header."""

    hint: str
    """Advice for when the API server refuses even renewed credentials."""
    certificate: str
    """The client certificate for new connections that came with the last value; empty where none comes with it."""

    async def authorization(self) -> str:
        """Return the header's value; empty when TLS carries the credential (a client certificate)."""

    async def renew(self) -> bool:
        """Drop a refused credential; False when there is no way to get a newer one."""


class Fixed:
    """A credential that never changes: a token, a password, or a client certificate in the TLS layer."""

    certificate = ""

    def __init__(self, authorization: str = "", *, hint: str) -> None:
        self._authorization = authorization
        self.hint = hint

    async def authorization(self) -> str:
        """See :class:`Credentials`."""
        return self._authorization

    async def renew(self) -> bool:
        """See :class:`Credentials`."""
        return False


class TokenFile:
    """A token in a file that another process rotates: in a pod, the kubelet."""

    certificate = ""
    hint = "The token file was refused: check the service account that it belongs to."

    def __init__(self, path: Path) -> None:
        self._path = path

    async def authorization(self) -> str:
        """See :class:`Credentials`."""
        hint = "Check the kubeconfig's tokenFile, or fetch the credentials again."
        try:
            token = self._path.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ClusterError(f"The token file {self._path} cannot be read: {error.strerror}.", hint=hint) from error
        except UnicodeDecodeError:
            token = ""
        if not is_token(token):
            raise ClusterError(f"The token file {self._path} does not hold one line of text.", hint=hint)
        return f"Bearer {token}"

    async def renew(self) -> bool:
        """See :class:`Credentials`."""
        return True


class Renewable:
    """A header's value that is kept until shortly before it expires.

    Args:
      fetch: Returns the value, and its expiry in seconds since the epoch (``inf`` when it has none).
      hint: What the user can do when that fails, or when the API server refuses the credentials.
    """

    def __init__(self, fetch: Callable[[], Awaitable[tuple[str, float]]], *, hint: str) -> None:
        self._fetch = fetch
        self._lock = asyncio.Lock()
        self._value = ""
        self._expires = 0.0
        self._error: ClusterError | None = None
        self.hint = hint
        self.certificate = ""

    async def authorization(self) -> str:
        """See :class:`Credentials`."""
        waited = self._lock.locked()
        async with self._lock:
            if time.time() > self._expires - MARGIN_SECONDS:
                if waited and self._error is not None:
                    # What hangs is waited for once, not once for each request that came meanwhile. And a process that
                    # is being started when its loop closes never ends: asyncio waits for its pipes.
                    raise ClusterError(str(self._error), hint=self._error.hint) from self._error
                self._error = None
                try:
                    async with asyncio.timeout(CREDENTIAL_SECONDS):
                        self._value, self._expires = await self._fetch()
                except TimeoutError as error:
                    self._error = self._late()
                    raise self._error from error
                except ClusterError as error:
                    self._error = error
                    raise
            return self._value

    async def renew(self) -> bool:
        """See :class:`Credentials`."""
        self._expires = 0.0
        return True

    def _late(self) -> ClusterError:
        return ClusterError(f"No credentials were received within {CREDENTIAL_SECONDS:g} s.", hint=self.hint)


class ExecPlugin(Renewable):
    """A program that prints an ExecCredential, such as ``gke-gcloud-auth-plugin``.

    Not the `kubernetes` package's: that one waits for ever, reads the notebook server's standard input, keeps no
    token until its expiry, and logs a plugin's error instead of raising it.

    Args:
      config: The ``exec`` entry of a kubeconfig user.
      directory: What relative commands are relative to.
      cluster: What a plugin learns of the cluster (``provideClusterInfo``), in the fields of an ExecCredential.
      context: TLS settings into which a client certificate from the plugin is loaded.
    """

    def __init__(
        self, config: Mapping[str, Any], *, directory: Path, cluster: Mapping[str, Any], context: ssl.SSLContext | None
    ) -> None:
        version = str(config.get("apiVersion", ""))
        if not config.get("command") or version not in _EXEC_VERSIONS:
            raise ConfigError(
                f"The kubeconfig's exec entry has no command, or an unknown apiVersion ({version or 'none'}).",
                hint=f"Known: {', '.join(_EXEC_VERSIONS)}. Fetch the credentials of the cluster again.",
            )
        if config.get("interactiveMode") == "Always":
            raise ConfigError(
                f"The credential plugin {config['command']} needs a terminal, which a notebook does not have.",
                hint="Use a context whose plugin works without a terminal, or whose user has a token.",
            )
        self._tool = Path(str(config["command"])).name
        super().__init__(self._run, hint=f"Log in again with the tool behind {self._tool}, e.g. gcloud auth login.")
        self._config = config
        self._version = version
        self._directory = directory
        self._cluster = cluster
        self._context = context

    async def _run(self) -> tuple[str, float]:
        transport, printed = await self._start()
        try:
            await printed.whole
        except BaseException as error:
            # Also when it takes too long. The plugin's children too, as far as they have stayed in its process group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(transport.get_pid(), signal.SIGKILL)
            await printed.exited.wait()
            if isinstance(error, asyncio.LimitOverrunError):
                raise self._broken(f"it printed more than {_MAX_CREDENTIAL_BYTES // 1024} KiB") from error
            raise
        finally:
            transport.close()
        if code := transport.get_returncode():
            said = reason(printed.complaint, "no message")
            if code < 0:
                raise self._broken(f"signal {-code} ended it: {said}")
            has_crashed = any(each in printed.complaint for each in _CRASHES)
            raise (self._broken if has_crashed else self._failed)(f"exit code {code}: {said}")
        try:
            status = dict(json.loads(printed.output)["status"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._broken("it did not print an ExecCredential") from error
        token = status.get("token")
        certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
        if not token and not (certificate and key):
            raise self._broken("it printed neither a token nor a client certificate")
        if token and not is_token(str(token)):
            raise self._broken("the token that it printed is not one line of text")
        if certificate and key and self._context:
            try:
                load_certificate(self._context, str(certificate).encode(), str(key).encode())
            except ConfigError as error:
                raise self._broken(str(error).rstrip(".")) from error
            self.certificate = str(certificate)
        expiry = status.get("expirationTimestamp")
        return f"Bearer {token}" if token else "", parse_time(str(expiry)) if expiry else float("inf")

    async def _start(self) -> tuple[asyncio.SubprocessTransport, _Printed]:
        command = str(self._config["command"])
        if os.sep in command:
            command = str(self._directory / command)
        environment = {str(each["name"]): str(each["value"]) for each in self._config.get("env") or ()}
        spec: dict[str, Any] = {"interactive": False}
        if self._config.get("provideClusterInfo"):
            spec["cluster"] = self._cluster
        # YAML has dates, which are text in JSON.
        request = json.dumps({"apiVersion": self._version, "kind": "ExecCredential", "spec": spec}, default=str)
        try:
            return await asyncio.get_running_loop().subprocess_exec(
                _Printed,
                command,
                *(str(each) for each in self._config.get("args") or ()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **environment, "KUBERNETES_EXEC_INFO": request},
                # A process group of its own, so that its children can be killed with it.
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            install_hint = " ".join(str(self._config.get("installHint") or "").split())
            raise ClusterError(
                f"The credential plugin {command} cannot be run: {getattr(error, 'strerror', '') or error}.",
                hint=install_hint
                or advice("Install it, or give {cluster}, {project} and {region}, which need no plugin on GKE."),
            ) from error

    def _late(self) -> ClusterError:
        return self._failed(f"it did not end within {CREDENTIAL_SECONDS:g} s")

    def _failed(self, problem: str, hint: str = "") -> ClusterError:
        return ClusterError(
            f"The credential plugin {self._config['command']} failed: {problem}.", hint=hint or self.hint
        )

    def _broken(self, problem: str) -> ClusterError:
        """Return the error of a plugin that does not work, no matter which account is logged in."""
        return self._failed(
            problem, f"See whether kubectl fails with this context too; if so, update {self._tool} or install it again."
        )


def is_token(text: str) -> bool:
    """Return whether `text` can be sent as a token; a line break in it would start another header."""
    return bool(text) and text.isprintable()


class _Printed(asyncio.SubprocessProtocol):
    """Output of a program.

    Not asyncio's streams: with them, waiting for a program ends only when its pipes have been read to their ends,
    even if it was killed. A full pipe that is not read, or one that a child of the program keeps open, has no end.
    """

    def __init__(self) -> None:
        self.output = b""
        self.complaint = b""
        """The last of its standard error."""
        self.whole: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it has exited and both pipes are at their ends.

        Raises:
          LimitOverrunError: It prints too much.
        """
        self.exited = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.complaint = (self.complaint + data)[-_KEPT_STDERR_BYTES:]
        elif len(self.output) + len(data) <= _MAX_CREDENTIAL_BYTES:
            self.output += data
        elif not self.whole.done():
            self.whole.set_exception(asyncio.LimitOverrunError("too much was printed", _MAX_CREDENTIAL_BYTES))

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.whole.done():
            self.whole.set_result(None)


def load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a client certificate from memory (PEM) into `context`.

    Raises:
      ConfigError: Certificate and key do not match, or are not PEM.
    """
    import tempfile

    # OpenSSL reads certificates from files only. The file is private (0600), and removed before this returns.
    descriptor, path = tempfile.mkstemp(prefix="pathways-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(certificate + b"\n" + key)
        context.load_cert_chain(path)
    except ssl.SSLError as error:
        raise ConfigError(
            f"The client certificate cannot be used: {error.reason or error}.",
            hint="Fetch the credentials of the cluster again.",
        ) from error
    finally:
        os.unlink(path)


def parse_time(text: str) -> float:
    """Return a Kubernetes timestamp, e.g. ``2026-01-31T12:00:00Z``, in seconds since the epoch.

    Raises:
      ClusterError: `text` is not a timestamp.
    """
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise ClusterError(
            f"{text!r} is not a timestamp.", hint="Check the version of the program that wrote it."
        ) from error
