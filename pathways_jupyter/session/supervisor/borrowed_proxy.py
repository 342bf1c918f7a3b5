"""The life cycle of a session that uses the proxy of a headless job: find it, reach it, let go of it.

The job does not belong to the session. Nothing is created in the cluster and nothing carries the session's label, so
that no clean-up of this session, by any process and at any time, can delete anything of the job.
"""

from __future__ import annotations

import time

from pathways_jupyter.base.errors import ServiceError
from pathways_jupyter.base.events import EventKind, Stage
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.service import headless, names
from pathways_jupyter.service.headless import JobProxy
from pathways_jupyter.service.pathwaysjob import obstacles
from pathways_jupyter.session.supervisor.proxy import Proxy

_WHY_SECONDS = 2.0
"""Longest time until a job shows in its status what happened to its head pod."""
_SET = advice(
    "Set them in the env of that container (PATHWAYS_HEAD is the value of the pod's label "
    "jobset.sigs.k8s.io/coordinator) and apply the job again, or let {job_new:NAME} write one."
)


class BorrowedProxy(Proxy):
    """The proxy of a job; the arguments are those of :class:`Proxy`."""

    _job_proxy: JobProxy
    """Set by :meth:`start`, before anything of it can be gone."""

    async def start(self) -> None:
        """Wait until the job runs, and return when JAX can connect to its proxy.

        Raises:
          ServiceError: There is no such job, or a notebook cannot attach to it.
          PathwaysError: Any other failure.
        """
        name, namespace = self._config.job, self._session_log.record.namespace
        # A job waits for nodes, like a proxy for slices; with `wait` that is all the time that there is.
        seconds = self._config.wait or self._config.timeout
        ends = time.monotonic() + seconds
        self._stage(Stage.JOB, f"Looking for job {name}.")
        job_proxy = self._job_proxy = await headless.find(
            self._client,
            name,
            namespace=namespace,
            seconds=seconds,
            progress=lambda words: self._stage(Stage.JOB, words),
        )
        self._slices.instances = {job_proxy.job.instance_type: job_proxy.job.slices}
        self._session_log.update(instances=dict(self._slices.instances))
        self._stage(Stage.JOB, f"Job {name} runs.", done=True)
        flaw = None
        if job_proxy.unset:
            flaw = ServiceError(obstacles.explain_unset(name, job_proxy.unset), hint=_SET)
            self._session_log.report(EventKind.WARNING, str(flaw))
        if job_proxy.demands_alts:
            self._session_log.report(EventKind.WARNING, obstacles.explain_alts(name))
        # From here on the session depends on this pod; a head pod that replaces it is another proxy.
        self._watch.begin(
            self._client, namespace, headless.head_labels(name), pod=job_proxy.pod, container=names.PROXY_CONTAINER
        )
        self._patience = min(self._config.timeout, max(0.0, ends - time.monotonic()))
        pod = await self._ready()
        self._begin(self._slices.follow(pod, joined=True))
        self._patience = min(self._config.timeout, max(0.0, ends - time.monotonic()))
        # Also from a pod: no NetworkPolicy can be added for a proxy that is there already.
        await self._open_tunnel(pod, job_proxy.port, flaw=flaw)

    async def _why_gone(self, reason: str) -> str:
        return await headless.why_gone(self._client, self._job_proxy, reason, seconds=_WHY_SECONDS)
