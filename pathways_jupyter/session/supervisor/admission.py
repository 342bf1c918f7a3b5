"""Admission of a session's proxy by Kueue."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable

from pathways_jupyter.base import tasks
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import CapacityError, ServiceError
from pathways_jupyter.base.events import Stage
from pathways_jupyter.base.sentences import advice, say
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import Object
from pathways_jupyter.service import queues


async def wait(
    client: Client, job: Object, config: ConnectConfig, lost: asyncio.Future[str], report: Callable[..., None]
) -> None:
    """Wait until Kueue admits `job`, for `config.wait` if that is set; report what Kueue says meanwhile.

    Args:
      lost: Done, with the reason, when the Job is gone.
      report: Publishes a stage with a message, and whether it is done.

    Raises:
      CapacityError: The wait is over.
      ServiceError: The Job is gone.
    """
    seen, seconds = "", config.wait or math.inf

    async def follow() -> None:
        nonlocal seen
        queued = queues.until_admitted(client, job, seconds=seconds)
        async with contextlib.aclosing(queued):
            async for seen in queued:
                report(Stage.QUEUE, seen)

    followed, gone = await tasks.first_done(follow(), lost)
    if gone is not None:
        raise ServiceError(f"The proxy's Job has gone from its queue. {gone.result()}", hint=advice("Try again."))
    assert followed is not None
    try:
        followed.result()
    except TimeoutError:
        raise CapacityError(
            f"Kueue has not admitted the proxy within {seconds:.0f} s. {seen}",
            hint=advice("Raise {wait}, or leave it out to wait without limit."),
        ) from None
    report(Stage.QUEUE, say("Admitted by queue {queue}.", queue=config.queue), done=True)
