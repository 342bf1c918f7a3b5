"""Short requests to the hosts: which names cells have left there, forget them, end the processes."""

from __future__ import annotations

import time
from typing import Any

from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.colocated import interruptible_wait
from pathways_jupyter.colocated.channel import Answer, channel
from pathways_jupyter.colocated.errors import ColocatedError, LostError, name_hosts, printable
from pathways_jupyter.colocated.host import Host, choose, hosts
from pathways_jupyter.colocated.memory import MEMORY

_RESTART_SECONDS = 60.0
"""Longest time for new processes: a kubelet backs off when a container ends again and again."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 2.0


def reset(**where: Any) -> None:
    """Delete the names that cells of this session defined; `where` is ``slices`` and ``hosts``, see `choose`."""
    interruptible_wait.ask(channel(choose(hosts(), **where)), {"op": "reset", "session": MEMORY.session})


def who(**where: Any) -> dict[int, dict[str, str]]:
    """Return the names that cells of this session defined, each with its type, by host index."""
    answers = interruptible_wait.ask(channel(choose(hosts(), **where)), {"op": "who", "session": MEMORY.session})
    return {
        answer.host.index: {printable(name): printable(kind) for name, kind in answer.head["names"].items()}
        for answer in answers
    }


def restart(**where: Any) -> tuple[Host, ...]:
    """Restart the sidecars' processes, and return when all of them answer again; names of earlier cells are gone.

    For what Interrupt does not end: code that catches it, or that waits in C. A process ends itself on request, as it
    answers requests beside whatever still runs. Its container then starts anew: in the embedded cluster the proxy gets
    another process, elsewhere the kubelet restarts the container.

    Args:
      where: ``slices`` and ``hosts``, see :func:`~pathways_jupyter.colocated.host.choose`; all hosts by default.

    Raises:
      ColocatedError: A host did not answer in time.
    """
    chosen = choose(hosts(), **where)
    deadline = time.monotonic() + _RESTART_SECONDS

    def ask(operation: str) -> tuple[Answer, ...]:
        """Return what hosts answer; nothing where a process went away before it did."""
        try:
            return interruptible_wait.ask(channel(chosen), {"op": operation}, seconds=deadline - time.monotonic())
        except LostError:
            return ()
        except TimeoutError:
            raise ColocatedError(
                f"{name_hosts([host.index for host in chosen])} did not answer for {_RESTART_SECONDS:.0f} s.",
                hint=advice(
                    "Delete the pods (kubectl delete pod NAME; {colocated_hosts} names them): arrays on their "
                    "slices are lost."
                ),
            ) from None

    before = {index: facts.boot for index, facts in MEMORY.facts(chosen).items()}
    before |= {answer.host.index: answer.head["boot"] for answer in ask("restart")}
    for _ in Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS):
        answers = ask("ping")
        if answers and all(answer.head["boot"] != before[answer.host.index] for answer in answers):
            break
    MEMORY.forget(chosen)
    return chosen
