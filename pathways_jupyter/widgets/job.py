"""Everything about one job in a notebook, live while cells run."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.kube.client import Client
from pathways_jupyter.render import jobs as still
from pathways_jupyter.service.jobs import JobPicture, pictures
from pathways_jupyter.session import clusters
from pathways_jupyter.widgets.live import Live

_MAX_LIVE = 3
"""Jobs of one kernel that are followed at a time; an older picture is marked as no longer live."""

_live: list[JobPanel] = []


class JobPanel(Live):
    """A job's state, pods and events, until the job is over.

    Args:
      shell: IPython's shell of this kernel.
      where: The job's cluster.
      picture: The job to begin with.
    """

    def __init__(self, shell: Any, where: ConnectConfig, picture: JobPicture) -> None:
        self._where = where
        self._picture = picture
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        super().__init__(shell, still.details(picture))

    def end(self, note: str = "") -> None:
        """Draw the job a last time, with `note` below, and stop following it."""
        self._redraw(still.details(self._picture, note=note), last=True)
        with contextlib.suppress(ValueError):
            _live.remove(self)
        if self._loop is not None and self._task is not None and not self._loop.is_closed():
            # The watch runs in another thread's event loop, and a task may only be cancelled from its own.
            self._loop.call_soon_threadsafe(self._task.cancel)

    def _begin(self) -> None:
        # A daemon thread, so that a kernel can exit without waiting for it.
        threading.Thread(target=self._run, name="pathways-job", daemon=True).start()
        _live.append(self)
        for older in _live[:-_MAX_LIVE]:
            older.end("No longer live, because other jobs were shown; run this cell again for the current state.")

    def _run(self) -> None:
        try:
            asyncio.run(self._follow())
        except asyncio.CancelledError:
            return
        except PathwaysError as error:
            self.end(f"No longer live: {error} {error.hint}".rstrip())
        else:
            self.end()

    async def _follow(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        job = self._picture.job
        async with (
            clusters.explain_local_errors(self._where),
            Client(await clusters.resolve(self._where)) as client,
            contextlib.aclosing(pictures(client, job.name, namespace=job.namespace)) as found,
        ):
            async for self._picture in found:
                self._redraw(still.details(self._picture))
