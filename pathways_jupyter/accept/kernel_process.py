"""The other end of :mod:`.kernel_program`: a process with a session, which is asked for checks and may be killed."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil

from pathways_jupyter.accept.plan import CONNECT, Broken, Check, Outcome, Skipped
from pathways_jupyter.base import json_lines
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.session import protocol

_LOG_LINES = 20


class Kernel:
    """A process with a session of its own.

    Attributes:
      process: It does not get the terminal's Interrupts.
      children: The processes that it had when it was killed.
      ended: Why it can be asked nothing any more; empty while it can.
    """

    def __init__(self, config: ConnectConfig) -> None:
        self.ended = ""
        self.children: list[psutil.Process] = []
        self._config = config
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        # -P: the working directory may contain a file with a standard module's name.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pathways_jupyter.accept.kernel_program"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        self._send(config=protocol.config_to_json(config))

    def ask(self, check: Check) -> Iterator[str]:
        """Run a check there; yield what it finds.

        Raises:
          Skipped: It cannot run.
          Broken: It failed, or took too long, or ended the process. In the last two cases the process has ended.
        """
        if self.ended:
            raise Skipped(self.ended)
        self._send(check=check.name)
        # Connecting may also wait for slices, and for the proxy's pod.
        seconds = check.seconds + (self._config.timeout + self._config.wait if check is CONNECT else 0)
        deadline = time.monotonic() + seconds
        while True:
            try:
                answer = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self.ended = f"{check.name} did not end, and its process was killed"
                self.kill()
                raise Broken(f"It did not end within {seconds:.0f} s, and its process was killed.") from None
            if answer is None:
                self.ended = f"the process that has the session ended in {check.name}"
                code = self.process.wait()
                self._log.seek(0)
                last = "\n".join(self._log.read().splitlines()[-_LOG_LINES:])
                raise Broken(f"The process ended with exit code {code}. Its last lines:\n{last}")
            if "line" in answer:
                yield answer["line"]
                continue
            if answer["outcome"] == Outcome.SKIPPED:
                raise Skipped(answer["why"])
            if answer["outcome"] == Outcome.FAILED:
                raise Broken(answer["why"])
            return

    def kill(self) -> None:
        """End it as a crash does; its supervisor cleans up."""
        self.ended = self.ended or "the process was killed"
        with contextlib.suppress(psutil.NoSuchProcess):
            # Its supervisor, also one that has no record yet.
            self.children += psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End it, and close the pipes."""
        self.kill()
        assert self.process.stdin is not None
        # OSError: a request that it has not read.
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self._log.close()

    def _send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        # OSError: it has ended, which the next answer says.
        with contextlib.suppress(OSError):
            self.process.stdin.write(json_lines.encode(message))
            self.process.stdin.flush()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._answers.put(json_lines.decode(line))
        self._answers.put(None)
