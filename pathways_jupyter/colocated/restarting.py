"""Ends the sidecars' processes, for what Interrupt does not end: code that catches it, or that waits in C.

The process ends itself, which a request asks it to do; requests are answered beside whatever still runs. Its container
then starts anew: in the embedded cluster the proxy gets another process, elsewhere the kubelet restarts the container.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from pathways_jupyter import interruptible
from pathways_jupyter.colocated import interruptible_wait
from pathways_jupyter.colocated.channel import Answer, channel
from pathways_jupyter.colocated.errors import ColocatedError, LostError, name_hosts
from pathways_jupyter.colocated.host import Host, choose, hosts
from pathways_jupyter.colocated.memory import MEMORY

_RESTART_SECONDS = 60.0
"""How long new processes may take: a kubelet backs off when a container ends again and again."""
_RETRY_SECONDS = 0.2


def restart(**where: Any) -> tuple[Host, ...]:
    """Restart the sidecars' processes, and return when all of them answer again; names of earlier cells are gone.

    Args:
      where: ``slices`` and ``hosts``, see :func:`~pathways_jupyter.colocated.host.choose`; all hosts by default.

    Raises:
      ColocatedError: A host did not answer in time.
    """
    chosen = choose(hosts(), **where)
    deadline = time.monotonic() + _RESTART_SECONDS
    before = {index: facts.boot for index, facts in MEMORY.facts(chosen).items()}
    before |= {answer.host.index: answer.head["boot"] for answer in _ask(chosen, "restart", deadline)}
    while True:
        answers = _ask(chosen, "ping", deadline)
        if answers and all(answer.head["boot"] != before[answer.host.index] for answer in answers):
            break
        if time.monotonic() > deadline:
            raise _no_answer(chosen)
        time.sleep(_RETRY_SECONDS)
    MEMORY.forget(chosen)
    return chosen


def _ask(to: Sequence[Host], operation: str, deadline: float) -> tuple[Answer, ...]:
    """What hosts answer; nothing where a process went away before it did.

    Raises:
      ColocatedError: The deadline is over, with no answer and no loss.
    """
    found: list[tuple[Answer, ...]] = []
    failed: list[Exception] = []
    done = interruptible.Event()

    def work() -> None:
        try:
            found.append(interruptible_wait.ask(channel(to), {"op": operation}))
        except Exception as error:
            failed.append(error)
        done.set()

    # On a thread: JAX would wait without end for a host that is stuck, and would not notice an Interrupt.
    threading.Thread(target=work, name="colocated-restart", daemon=True).start()
    if not done.wait(max(0.0, deadline - time.monotonic())):
        raise _no_answer(to)
    if failed and not isinstance(failed[0], LostError):
        raise failed[0]
    return found[0] if found else ()


def _no_answer(to: Sequence[Host]) -> ColocatedError:
    return ColocatedError(
        f"{name_hosts([host.index for host in to])} did not answer for {_RESTART_SECONDS:.0f} s.",
        hint="Delete the pods (kubectl delete pod NAME; %colocated hosts names them): arrays on their slices are lost.",
    )
