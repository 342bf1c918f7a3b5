"""Everything about one job in a notebook, live while cells run."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.kube.client import Client
from pathways_jupyter.render import jobs as still
from pathways_jupyter.render.view import View
from pathways_jupyter.service.jobs import JobPicture, pictures
from pathways_jupyter.session import clusters
from pathways_jupyter.widgets.watched import Watched


class JobPanel(Watched):
    """A job's state, pods and events, until the job is over.

    Args:
      shell: IPython's shell of this kernel.
      where: The job's cluster.
      picture: The job to begin with.
    """

    watched: ClassVar[list[Watched]] = []
    superseded = "other jobs were shown"

    def __init__(self, shell: Any, where: ConnectConfig, picture: JobPicture) -> None:
        self._where = where
        self._picture = picture
        super().__init__(shell)

    def _drawn(self, note: str = "") -> View:
        return still.details(self._picture, note=note)

    async def _watch(self) -> None:
        job = self._picture.job
        async with (
            clusters.explain_local_errors(self._where),
            Client(await clusters.resolve(self._where)) as client,
            contextlib.aclosing(pictures(client, job.name, namespace=job.namespace)) as found,
        ):
            async for self._picture in found:
                self._redraw(self._drawn())
