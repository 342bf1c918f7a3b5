"""A job as it changes: everything about it, again whenever it or its pods change."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import PODS, Resource
from pathways_jupyter.kube.watch import watch
from pathways_jupyter.service import jobs, names
from pathways_jupyter.service.jobs import JobPicture
from pathways_jupyter.service.pathwaysjob import conditions

_PAUSE_SECONDS = 0.5
"""Shortest time between two pictures: each takes three requests, and a starting job changes many times a second."""
_ENDED_PODS = frozenset({"Succeeded", "Failed"})


async def pictures(client: Client, name: str, *, namespace: str) -> AsyncGenerator[JobPicture, None]:
    """Yield a job whenever it or its pods change, until it is over and its pods have ended.

    Raises:
      ServiceError: There is none of that name, or it was deleted meanwhile.
      ClusterError: The cluster could not be reached at the start, or watching is forbidden.
    """
    changed = asyncio.Event()

    async def follow(resource: Resource, **selected: str) -> None:
        async with contextlib.aclosing(watch(client, resource, namespace=namespace, **selected)) as changes:
            async for _ in changes:
                changed.set()

    found = await jobs.picture(client, name, namespace=namespace)
    watches = [
        asyncio.create_task(follow(jobs.resource_of(found.job), name=name)),
        asyncio.create_task(follow(PODS, labels=f"{names.JOBSET_NAME_LABEL}={name}")),
    ]
    try:
        while True:
            yield found
            if _is_over(found):
                return
            await asyncio.sleep(_PAUSE_SECONDS)
            news = asyncio.create_task(changed.wait())
            await asyncio.wait([news, *watches], return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
            for each in watches:
                if each.done():
                    # A watch ends only by an error.
                    each.result()
            changed.clear()
            found = await jobs.picture(client, name, namespace=namespace)
    finally:
        for task in watches:
            task.cancel()
        await asyncio.gather(*watches, return_exceptions=True)


def _is_over(picture: JobPicture) -> bool:
    over = picture.job.state in {conditions.COMPLETED, conditions.FAILED}
    return over and all(pod.state in _ENDED_PODS for pod in picture.pods)
