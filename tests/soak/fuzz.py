"""Send hostile input to every door of the product, and watches that those behind it are served all along.

The doors: the embedded Kubernetes API, the IFRT proxy (through the tunnel), a supervisor's control socket, the records
of sessions, kubeconfigs, and the Jupyter server's routes. Input is valid input with bytes changed, removed, repeated.
A fault is an answer that blames the server, a traceback in its log, or a neighbour that is not served.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit

from machine import INSTANCE, Machine

import pathways_jupyter
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.kube.auth import load
from pathways_jupyter.session import client, protocol, registry
from pathways_jupyter.session.protocol import Method, Request

TIMEOUT_SECONDS = 30.0
A_MOMENT_SECONDS = 0.05
HANG_SECONDS = 60
INPUTS_PER_CANARY = 25
MOST_FAULTS = 10

Attack = Callable[[random.Random], str]
"""Sends one hostile input; returns what was wrong, or nothing."""


class Hangs(BaseException):
    """Raised by the alarm; no OSError, which a door or the code behind it may suppress."""


def run(machine: Machine, *, seconds: float, chance: random.Random, only: Sequence[str]) -> bool:
    """Attacks each door for `seconds`; prints a table. Whether none had a fault."""
    signal.signal(signal.SIGALRM, _hangs)
    lines, sound = [], True
    for name in only:
        seed = chance.randrange(1 << 31)
        luck, sent, faults = random.Random(seed), 0, []
        deadline = time.monotonic() + seconds
        with DOORS[name](machine) as attack:
            while time.monotonic() < deadline and len(faults) < MOST_FAULTS:
                sent += 1
                signal.alarm(HANG_SECONDS)
                try:
                    fault = attack(luck)
                except (Hangs, TimeoutError) as error:
                    fault = f"no answer: {error}"
                finally:
                    signal.alarm(0)
                if fault:
                    faults.append(f"input {sent}: {fault}")
        sound = sound and not faults
        lines.append(f"| {name} | {sent} | {len(faults)} |")
        print(f"{name}: {sent} inputs, {len(faults)} faults", *faults, sep="\n  ", flush=True)
    print("\n| door | inputs | faults |\n| --- | --- | --- |", *lines, sep="\n")
    return sound


def mutated(data: bytes, chance: random.Random) -> bytes:
    """`data` with a few of its bytes changed, removed, repeated, or replaced by what parsers stumble over."""
    out = bytearray(data)
    for _ in range(chance.randint(0, 6)):
        place = chance.randrange(len(out) + 1)
        kind = chance.randrange(6)
        if kind == 0:
            out[place : place + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            del out[place : place + chance.randint(1, 20)]
        elif kind == 2:
            out[place:place] = out[place : place + chance.randint(1, 40)] * chance.randint(1, 50)
        elif kind == 3:
            out[place:place] = chance.choice(_STUMBLING_BLOCKS)
        elif kind == 4:
            out[place:place] = chance.randbytes(chance.randint(1, 300))
        else:
            del out[place:]
    return bytes(out)


_STUMBLING_BLOCKS = (
    b"[" * 50_000,
    b'{"a":' * 20_000,
    b"1e400",
    b"-1",
    b"NaN",
    b"\x00",
    b"\xff\xfe",
    b"\r\nX: 1\r\n",
    "\u00e9\u202e".encode(),
    b"99999999999999999999999",
    b"../../",
    b"%2e%2e%2f",
    b"null",
    b"&a [*a,*a]",
    b"A" * 100_000,
)


@contextlib.contextmanager
def api(machine: Machine) -> Iterator[Attack]:
    """The embedded API server, as a user with a token."""
    address = urlsplit(machine.cluster.url)
    trust = ssl.create_default_context(cadata=_certificate(machine))
    bearer = {"Authorization": f"Bearer {_token(machine)}"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "fuzz"}, "spec": {"containers": [{"name": "c"}]}}
    plurals = ("api/v1/namespaces/fuzz/pods", "apis/batch/v1/namespaces/fuzz/jobs", "api/v1/namespaces/fuzz/configmaps")

    def ask(method: str, path: str, body: bytes = b"", **headers: str) -> int:
        with contextlib.closing(
            http.client.HTTPSConnection(str(address.hostname), address.port, timeout=TIMEOUT_SECONDS, context=trust)
        ) as connection:
            connection.putrequest(method, path, skip_accept_encoding=True)
            for name, value in {**bearer, **headers, "Content-Length": str(len(body))}.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            return connection.getresponse().status

    def attack(chance: random.Random) -> str:
        method = chance.choice(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
        path = f"/{chance.choice(plurals)}{chance.choice(['', '/fuzz', '/fuzz/status', '/fuzz/log', '/fuzz/exec'])}"
        query = mutated(b"timeoutSeconds=1&labelSelector=a&limit=2&resourceVersion=0&fieldSelector=b", chance)[:4000]
        path = quote(mutated(path.encode(), chance)[:4000], safe="/") + "?" + quote(query, safe="=&")
        kinds = ["application/json", "application/yaml", "application/merge-patch+json", "application/json-patch+json"]
        headers = {"Content-Type": chance.choice([*kinds, "application/apply-patch+yaml", "x/y"])}
        if chance.random() < 0.1:
            headers["Content-Encoding"] = "gzip"
        try:
            status = ask(method, path, mutated(json.dumps(pod).encode(), chance), **headers)
        except (http.client.HTTPException, ConnectionError, ssl.SSLError):
            status = 0
        if status >= 500 and status != 504:
            return f"{method} {path[:200]} {headers} was answered {status}"
        return "" if ask("GET", "/version") == 200 else f"/version failed after {method} {path[:200]}"

    yield attack


@contextlib.contextmanager
def proxy(machine: Machine) -> Iterator[Attack]:
    """The IFRT proxy's HTTP/2 port, beside a session that goes on computing through the same tunnel."""
    import jax.numpy as jnp

    frames = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
    opening = (
        b"\0\0\x05\1\4\0\0\0\1\x82\x86\x84\x41\0"
        + b"\0\0\x08\6\0\0\0\0\0pingping"
        + b"\0\0\4\x08\0\0\0\0\1\0\0\xff\xff"
    )
    count = 0
    with _session() as session:

        def attack(chance: random.Random) -> str:
            nonlocal count
            count += 1
            _throw(session.record.tunnel, frames + mutated(opening * chance.randint(1, 5), chance))
            if count % INPUTS_PER_CANARY:
                return ""
            return "" if float(jnp.arange(8.0).sum()) == 28.0 else "the session computes wrong numbers"

        yield attack


@contextlib.contextmanager
def supervisor(machine: Machine) -> Iterator[Attack]:
    """The control socket of a session's supervisor."""
    with _session() as session:
        record = session.record
        log = Path(record.log)

        def attack(chance: random.Random) -> str:
            method = chance.choice([Method.STATUS, Method.EVENTS, Method.START])
            _throw(record.socket, mutated(protocol.encode(Request(1, method, {"config": {}})) * 3, chance) + b"\n")
            client.request(record, Method.STATUS, patience=TIMEOUT_SECONDS)
            return "there is a traceback in its log" if "Traceback" in log.read_text(errors="replace") else ""

        yield attack


@contextlib.contextmanager
def records(machine: Machine) -> Iterator[Attack]:
    """Session records on disk: a bad one hides none of the good ones."""
    with _session() as session:
        good = registry.record_path(session.id).read_bytes()
        path = registry.record_path("fuzzed")

        def attack(chance: random.Random) -> str:
            kind = chance.randrange(8)
            if kind == 0:
                path.mkdir()
            elif kind == 1:
                os.mkfifo(path)
            elif kind == 2:
                path.symlink_to(path)
            else:
                path.write_bytes(mutated(good.replace(session.id.encode(), b"fuzzed"), chance))
            try:
                found = [record.id for record in registry.sessions()]
                return "" if session.id in found else f"the good record is hidden by {path.lstat()}"
            finally:
                path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)

        yield attack


@contextlib.contextmanager
def kubeconfigs(machine: Machine) -> Iterator[Attack]:
    """Kubeconfigs: each is read, or refused by an error of ours."""
    good = machine.cluster.kubeconfig.read_bytes()
    path = machine.runtime.parent / "fuzzed.yaml"

    def attack(chance: random.Random) -> str:
        path.write_bytes(mutated(good, chance))
        with contextlib.suppress(PathwaysError):
            load(str(path))
        return ""

    yield attack


@contextlib.contextmanager
def routes(machine: Machine) -> Iterator[Attack]:
    """The Jupyter server's routes, as a user who is logged in."""
    code = "import sys; from jupyter_server.serverapp import main; main(sys.argv[1:])"
    options = [
        "--ServerApp.port=0",
        "--ServerApp.open_browser=False",
        "--IdentityProvider.token=secret",
        "--allow-root",
    ]
    server = subprocess.Popen(
        [sys.executable, "-c", code, *options], stderr=subprocess.PIPE, text=True, cwd=machine.runtime.parent
    )
    assert server.stderr is not None
    port = next(int(found[1]) for line in server.stderr if (found := re.search(r"http://localhost:(\d+)/", line)))
    _wait_until_it_listens(port)
    drain = subprocess.Popen(["cat"], stdin=server.stderr, stdout=subprocess.DEVNULL)

    def ask(method: str, path: str, body: bytes = b"") -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
        with contextlib.closing(connection):
            connection.request(method, path, body or None, {"Authorization": "token secret"})
            return connection.getresponse().status

    def attack(chance: random.Random) -> str:
        route = chance.choice(["services", "logs", "sessions", "profiles", "clusters", "sessions/abc/disconnect"])
        query = mutated(b"context=a&namespace=default&pod=b&kubeconfig=/etc/passwd&local=true", chance)[:4000]
        path = f"/pathways-jupyter/{route}?{quote(query, safe='=&')}"
        method = chance.choice(["GET", "POST", "PUT", "DELETE"])
        status = ask(method, path, mutated(b'{"session": "abc", "context": "a"}', chance))
        if status >= 500:
            return f"{method} {path[:300]} was answered {status}"
        return "" if ask("GET", "/api") == 200 else "the server does not answer"

    try:
        yield attack
    finally:
        server.terminate()
        server.wait(TIMEOUT_SECONDS)
        drain.wait(TIMEOUT_SECONDS)


DOORS: dict[str, Callable[[Machine], contextlib.AbstractContextManager[Attack]]] = {
    "api": api,
    "proxy": proxy,
    "supervisor": supervisor,
    "records": records,
    "kubeconfigs": kubeconfigs,
    "routes": routes,
}


def _hangs(number: int, frame: object) -> None:
    raise Hangs(f"it hangs for {HANG_SECONDS} s")


def _session() -> pathways_jupyter.Session:
    return pathways_jupyter.connect(tpu={INSTANCE: 1}, local=True, wait=60, progress=False)


def _wait_until_it_listens(port: int) -> None:
    """A Jupyter server prints its address a moment before it accepts connections there."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS).close()
            return
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise


def _throw(path: str, data: bytes) -> None:
    """Send `data` to a unix socket, and read for a moment what comes back."""
    with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(OSError):
        connection.settimeout(A_MOMENT_SECONDS)
        connection.connect(path)
        connection.sendall(data)
        while connection.recv(1 << 16):
            pass


def _kubeconfig(machine: Machine) -> dict[str, list[dict[str, dict[str, str]]]]:
    import yaml

    found: dict[str, list[dict[str, dict[str, str]]]] = yaml.safe_load(machine.cluster.kubeconfig.read_text())
    return found


def _token(machine: Machine) -> str:
    return _kubeconfig(machine)["users"][0]["user"]["token"]


def _certificate(machine: Machine) -> str:
    entry = _kubeconfig(machine)["clusters"][0]["cluster"]
    if "certificate-authority" in entry:
        return Path(entry["certificate-authority"]).read_text()
    import base64

    return base64.b64decode(entry["certificate-authority-data"]).decode()
