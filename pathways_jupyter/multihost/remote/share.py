"""Pass content from host to host, so that the client need not send it to each of them.

A host that has unpacked a directory listens at one port for the other hosts of the same run. Both ends of a connection
show the same certificate, which the client makes for one run and sends over its own verified connections; a connection
without it gets no answer. A host accepts nothing but content whose hash its client has named.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pathways_jupyter.multihost.remote.content_store import Store
from pathways_jupyter.multihost.remote.frames import Decoder, encode

if TYPE_CHECKING:
    import ssl

CONNECTIONS = 8
"""How many are answered at once."""
_CONNECT_SECONDS = 10.0
_SILENCE_SECONDS = 30.0
_ACCEPT_SECONDS = 1.0
_CLOSE_SECONDS = 2.0
_PIECE_BYTES = 1024 * 1024
_READ_BYTES = 256 * 1024
_READS = 64


class FetchError(Exception):
    """The other host does not send what it was asked for; the message says why."""


def own_address() -> str:
    """Return the address of this host at which other hosts of its network reach it, as far as it knows."""
    # The server's end of the client's connection. Behind an address translation it is the address inside.
    words = os.environ.get("SSH_CONNECTION", "").split()
    return words[2] if len(words) == 4 else socket.gethostbyname(socket.gethostname())


class Share:
    """Answers hosts that show the certificate of `secret`, in threads, until it is closed.

    Args:
      files: Path of each content that may be asked for, by its hash.
      secret: Certificate and key as PEM.

    Raises:
      OSError: The address is not one of this host.
    """

    def __init__(self, files: Mapping[str, str], secret: bytes, address: str) -> None:
        self._files = files
        self._context = _context(secret, server=True)
        self._closed = False
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        self._open: set[socket.socket] = set()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family, backlog=64)
        self._listener.settimeout(_ACCEPT_SECONDS)
        self.address, self.port = address, int(self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Stop listening, and end the connections."""
        self._closed = True
        for each in (self._listener, *list(self._open)):
            # Unlike close(), this wakes a thread that waits for the socket; not TLS's own, which would wait too.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(each, socket.SHUT_RDWR)
        until = time.monotonic() + _CLOSE_SECONDS
        for thread in list(self._threads):
            thread.join(max(0.0, until - time.monotonic()))
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._listener.accept()
            except socket.timeout:  # noqa: UP041  the hosts' Python may be 3.9, where it is no TimeoutError
                continue
            except OSError:
                return
            if self._closed or not self._free.acquire(blocking=False):
                connection.close()
                continue
            connection.settimeout(_CONNECT_SECONDS)
            secured = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            self._open.add(secured)
            thread = threading.Thread(target=self._serve, args=(secured,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: ssl.SSLSocket) -> None:
        # Errors of TLS are OSErrors too: the other end gets no answer, and says so to the client.
        with contextlib.suppress(OSError, ValueError, KeyError, zlib.error):
            connection.do_handshake()
            wanted = _request(connection)
            connection.settimeout(_SILENCE_SECONDS)
            for digest in wanted:
                for frame in _frames(digest, self._files[digest]):
                    connection.sendall(frame)
            connection.sendall(encode({"op": "done"}))
        self._open.discard(connection)
        connection.close()
        self._free.release()


class Fetch:
    """Receives contents from another host; it can be waited for with ``select``.

    Args:
      store: Where they go.
      digests: The contents that are wanted; no other is accepted.

    Raises:
      FetchError: The other host cannot be reached.
    """

    def __init__(self, address: str, port: int, secret: bytes, store: Store, digests: Sequence[str]) -> None:
        self.received = 0
        self._store = store
        self._wanted = store.lacking(digests)
        self._expected = set(self._wanted)
        self._decoder = Decoder()
        self._last_data = time.monotonic()
        request = encode({"op": "want"}, zlib.compress(json.dumps(self._wanted).encode(), 1))
        try:
            context = _context(secret, server=False)
            # It closes the socket if it fails.
            self._connection = context.wrap_socket(socket.create_connection((address, port), timeout=_CONNECT_SECONDS))
            self._connection.sendall(request)
            self._connection.setblocking(False)
        except OSError as error:
            raise FetchError(_reason(error)) from error

    def fileno(self) -> int:
        """Return the socket's number."""
        return self._connection.fileno()

    @property
    def pending(self) -> bool:
        """Whether there is more to read that the socket no longer announces."""
        return self._connection.pending() > 0

    def receive(self) -> bool:
        """Keep what has arrived; return whether that was all.

        Raises:
          FetchError: The connection has ended early or is silent, or something else has arrived.
          OSError: The content cannot be written.
        """
        if time.monotonic() - self._last_data > _SILENCE_SECONDS:
            raise FetchError(f"nothing has arrived for {_SILENCE_SECONDS:.0f} s")
        # Not to the end: in between, the client must be answered.
        for _ in range(_READS):
            data = self._read()
            if data is None:
                break
            try:
                frames = list(self._decoder.feed(data))
            except ValueError as error:
                raise FetchError("it sent something else") from error
            for header, payload in frames:
                if header.get("op") == "done":
                    if self._store.lacking(self._wanted):
                        raise FetchError("it did not send everything")
                    return True
                self._keep(header, payload)
        return False

    def close(self) -> None:
        """End the connection; content that has arrived in part is removed."""
        # Another host, or the client, sends it from its beginning.
        self._store.discard()
        self._connection.close()

    def _read(self) -> bytes | None:
        import ssl

        try:
            data = self._connection.recv(_READ_BYTES)
        except ssl.SSLWantReadError:
            return None
        except OSError as error:
            raise FetchError(_reason(error)) from error
        if not data:
            raise FetchError("it closed the connection")
        self._last_data = time.monotonic()
        return data

    def _keep(self, header: dict[str, Any], payload: memoryview) -> None:
        if header.get("op") != "blob" or header.get("hash") not in self._expected:
            raise FetchError("it sent something else")
        self.received += len(payload)
        if not self._store.add(header["hash"], "raw", payload, last=bool(header.get("last"))):
            raise FetchError("a file arrived damaged")


def _context(secret: bytes, *, server: bool) -> ssl.SSLContext:
    # Not at the top: it takes as long as everything else that a host imports.
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # The certificate names no host: it is the key that counts, which only hosts of this run have.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    # OpenSSL reads it from a file only; this one is private, and gone at once.
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(secret)
        file.flush()
        context.load_cert_chain(file.name)
        context.load_verify_locations(file.name)
    return context


def _request(connection: ssl.SSLSocket) -> list[str]:
    decoder = Decoder()
    while True:
        data = connection.recv(_READ_BYTES)
        if not data:
            return []
        for _, payload in decoder.feed(data):
            wanted = json.loads(zlib.decompress(payload))
            return [str(each) for each in wanted]


def _frames(digest: str, path: str) -> Iterator[bytes]:
    # Not compressed: within a network that costs more time than it saves.
    with open(path, "rb", buffering=0) as file:
        data = file.read(_PIECE_BYTES)
        while True:
            more = file.read(_PIECE_BYTES)
            yield encode({"op": "blob", "hash": digest, "codec": "raw", "last": not more}, data)
            if not more:
                return
            data = more


def _reason(error: OSError) -> str:
    # An error of TLS has its reason in capitals, such as TLSV1_ALERT_UNKNOWN_CA.
    reason = getattr(error, "reason", None)
    if isinstance(reason, str):
        return f"no secure connection ({reason.lower().replace('_', ' ')})"
    return error.strerror or str(error) or type(error).__name__
