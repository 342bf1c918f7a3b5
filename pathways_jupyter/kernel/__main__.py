"""The program of a kernelspec: reach the near end of its lab, and wait as a kernel's process does.

Nothing is imported here that takes time: the near end, where there is none yet, is forked from this process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import traceback
from typing import NoReturn

from pathways_jupyter.kernel import EXIT, RETURN

_PARENT_SECONDS = 1.0


def main(arguments: list[str]) -> int:
    """Run the kernel that `arguments` describe; return its exit code."""
    read_life, life = os.pipe()
    read_answer, answer = os.pipe()
    parent = os.getppid()
    if os.fork() == 0:
        os.close(life)
        os.close(read_answer)
        _detached(arguments, read_life, answer)
    os.close(read_life)
    os.close(answer)
    # The child ends at once where there is a near end, and nothing waits for it.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, lambda *_: os.write(life, b"i"))
    watched, said = bool(os.environ.get("JPY_PARENT_PID")), b""
    while True:
        if not select.select([read_answer], [], [], _PARENT_SECONDS)[0]:
            # As ipykernel does: a kernel whose server was killed ends.
            if watched and os.getppid() != parent:
                return 1
            continue
        if not (data := os.read(read_answer, 65536)):
            # The near end was killed. Another one ends what it has left in the pod.
            if os.fork() == 0:
                _detached(arguments)
            return 1
        *lines, said = (said + data).split(b"\n")
        for line in lines:
            if line.startswith(EXIT):
                return _exit(int(line[1:]))
            if line.startswith(RETURN):
                from pathways_jupyter.kernel import moved

                moved.return_to(moved.Moved.from_json(line[1:].decode()), arguments[arguments.index("-f") + 1])
            # Its terminal may have been closed.
            with contextlib.suppress(OSError):
                os.write(2, b"[kernel beside the chips] " + line + b"\n")


def _detached(arguments: list[str], lifeline: int = -1, answer: int = -1) -> NoReturn:
    """In a child, reach the near end, and end the process."""
    # An Interrupt or a signal for the kernel's process group is not for this one.
    os.setsid()
    try:
        _reach(arguments, lifeline, answer)
    except BaseException:
        traceback.print_exc()
        if answer >= 0:
            os.write(answer, b"The kernel cannot start, because of this error.\n")
    finally:
        os._exit(0)


def _reach(arguments: list[str], lifeline: int, answer: int) -> None:
    """Have the near end of the lab run the kernel, if there is an `answer`; become it where there is none."""
    from pathways_jupyter.kernel import handover

    at = arguments.index("-f")
    request = handover.request_of(arguments[at + 1], lifeline=lifeline, answer=answer) if answer >= 0 else None
    lab = arguments[:at] + arguments[at + 2 :]
    if (lock := handover.taken(handover.path_of(lab), request)) >= 0:
        from pathways_jupyter.kernel import near

        near.main(lab, request, lock)


def _exit(code: int) -> int:
    if code < 0:
        # By the signal that has ended the kernel.
        with contextlib.suppress(OSError):
            # SIGKILL and SIGSTOP have no handlers.
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
