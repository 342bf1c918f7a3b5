"""Compiles programs in processes of their own, so that one that crashes XLA does not take the proxy with it.

XLA trusts its caller: an address in a custom call is followed, and an assumption of its partitioner that does not hold
ends the process. In the proxy's process that would be the end of every array of every session; here it is the end of
one compilation, which fails with an error. The compiled program comes back as bytes, which the proxy loads.

Measured with JAX 0.10.2, in CPU time of all processes: 30 small programs take 2.05 s and not 1.85 s, the gradient of 40
unrolled layers 1.2 s and not 0.95 s, most of it to load machine code; starting a compiled program costs the same. A
compiler takes 25 to 80 ms to fork, and 31 MB. Running programs for the first time in another process was not
affordable: it would need a copy of all their arguments. What could crash there is refused instead, see
:mod:`stablehlo` and :mod:`executables`.

The proxy has threads and must not fork. So it forks a template before it starts its first thread, and sends that
template one end of a socket whenever it needs another compiler; the template forks it. A compiler ends when the other
end of its socket is closed, also in the middle of a compilation: when the proxy ends, or the client that asked for it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from pathways_jupyter.local.pathways import program_start
from pathways_jupyter.local.pathways.ifrt import statuses
from pathways_jupyter.local.pathways.ifrt.compilation import Compiled, compile_program, load, ready_lapack
from pathways_jupyter.local.pathways.ifrt.devices import Devices
from pathways_jupyter.local.pathways.ifrt.statuses import Code, StatusError

_log = logging.getLogger(__name__)

_AT_ONCE = max(2, os.cpu_count() or 1)
_KEPT_IDLE = 1
_CRASHED = (
    "XLA crashed while it compiled this program; nothing else was lost. The proxy's log has its last words:"
    " %pathways logs proxy"
)


class Compilers:
    """The compiler processes of one proxy.

    Args:
      devices: Those of the proxy; programs are compiled for them.
    """

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._template: socket.socket | None = None
        self._room = threading.Semaphore(_AT_ONCE)
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._busy: dict[Connection, int] = {}

    def start(self) -> None:
        """Forks the template; called once, while this process has no other thread."""
        # Imported before the fork, so that neither the template nor its forks have to do it again.
        import jax  # noqa: F401

        ours, theirs = socket.socketpair()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        if os.fork() == 0:
            ours.close()
            _fork_compilers(theirs, self._devices)
        theirs.close()
        self._template = ours

    def warm(self) -> None:
        """Forks a compiler, so that the first program does not wait for it."""
        with self._lock:
            if not self._idle:
                self._idle.append(self._fork())

    def compile(self, artifact: bytes, options: bytes, session: int) -> tuple[Compiled, Any]:
        """Compiles a program, and waits for it.

        Args:
          artifact: A StableHLO portable artifact.
          options: An encoded XlaCompileOptionsProto.
          session: The session that waits for it; see :meth:`end`.

        Returns:
          The program, and XLA's executable of it in this process.

        Raises:
          StatusError: The program cannot be compiled, or crashed its compiler.
        """
        compiled, code = self._compile_elsewhere(artifact, options, session)
        if code is not None:
            return compiled, load(compiled, code, self._devices)
        # It compiles, but jaxlib cannot serialize it: 0.10 crashes over tokens on several devices.
        _log.info("%s is compiled once more, in this process, because it cannot be serialized", compiled.name)
        ready_lapack()
        return compile_program(artifact, options, self._devices)

    def end(self, session: int) -> None:
        """Ends the compilations that a session still waits for: no limit of time would be right for all programs."""
        with self._lock:
            for compiler, owner in self._busy.items():
                if owner == session:
                    # Closing it here would not wake the thread that reads from it.
                    with socket.socket(fileno=os.dup(compiler.fileno())) as peer, contextlib.suppress(OSError):
                        peer.shutdown(socket.SHUT_RDWR)

    def _compile_elsewhere(self, artifact: bytes, options: bytes, session: int) -> tuple[Compiled, bytes | None]:
        with self._room, self._compiler(session) as compiler:
            try:
                compiler.send((artifact, options))
                answer = compiler.recv()
            except (EOFError, OSError) as error:
                compiler.close()
                raise StatusError(Code.INTERNAL, _CRASHED) from error
            if not isinstance(answer, Compiled):
                code, message = answer
                raise StatusError(Code(code), message)
            try:
                return answer, compiler.recv()
            except (EOFError, OSError):
                # The program is compiled by now: this crash says nothing about it.
                compiler.close()
                return answer, None

    @contextlib.contextmanager
    def _compiler(self, session: int) -> Iterator[Connection]:
        """A compiler for one program; closed by the caller if it must not be used again."""
        with self._lock:
            found: Connection | None = None
            while found is None and self._idle:
                found = self._idle.pop()
                # It says nothing unasked: what there is to read is its end, say by a kernel that ran out of memory.
                if found.poll():
                    found.close()
                    found = None
            compiler = found or self._fork()
            self._busy[compiler] = session
        try:
            yield compiler
        finally:
            with self._lock:
                del self._busy[compiler]
                if not compiler.closed and len(self._idle) < _KEPT_IDLE:
                    self._idle.append(compiler)
                else:
                    compiler.close()

    def _fork(self) -> Connection:
        assert self._template is not None, "start() must be called before"
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._template, [b"."], [theirs.fileno()])
            except OSError as error:
                ours.close()
                raise StatusError(Code.INTERNAL, f"the proxy cannot start a compiler process: {error}") from error
        return Connection(ours.detach())


def _fork_compilers(requests: socket.socket, devices: Devices) -> NoReturn:
    """Run the template: fork a compiler for each socket that it is sent, until the proxy ends."""
    code = 1
    try:
        # Ctrl-C and the like are for the proxy, whose end this process then sees.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, program_start.reap("Compiler"))
        while True:
            data, descriptors, _, _ = socket.recv_fds(requests, 1, 1)
            if not data:
                break
            (descriptor,) = descriptors
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                requests.close()
                _compile_for(Connection(descriptor), devices)
            os.close(descriptor)
        code = 0
    except BaseException:
        _log.exception("The template of the compilers failed")
    finally:
        # Not sys.exit: what the proxy has registered to be done at its end is not this process's to do.
        os._exit(code)


def _compile_for(proxy: Connection, devices: Devices) -> NoReturn:
    """Run a compiler: compile what the proxy sends, one program after the other."""
    # A crash leaves Python's stack in the log, which shows what was running.
    faulthandler.enable()
    threading.Thread(target=_end_with, args=(proxy.fileno(),), name="life", daemon=True).start()
    # Made before it is needed: the proxy forks compilers ahead of the first program.
    assert devices.client
    with contextlib.suppress(EOFError, OSError):
        while True:
            artifact, options = proxy.recv()
            try:
                compiled, executable = compile_program(artifact, options, devices)
            except Exception as error:
                status = statuses.of(error)
                proxy.send((int(status.code), status.message))
                continue
            # Sent ahead of the code: if serializing crashes, the proxy knows that compiling did not.
            proxy.send(compiled)
            try:
                code: bytes | None = executable.serialize()
            except Exception as error:
                _log.info("%s cannot be serialized: %s", compiled.name, error)
                code = None
            proxy.send(code)
    os._exit(0)


def _end_with(descriptor: int) -> None:
    """Ends this process when the other end of a socket is closed, whatever it is doing then."""
    hang_up = select.poll()
    # Not for what there is to read: that is for the thread that compiles. POLLHUP comes unasked.
    hang_up.register(descriptor, 0)
    hang_up.poll()
    os._exit(0)
