"""Workers that a fault may hit: those of one session's slices, or those of one job, and no others."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ConfigError, PathwaysError, SessionError
from pathways_jupyter.base.events import Event, EventKind, SessionSlice, find_slice
from pathways_jupyter.elastic.record import Kind
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import Object
from pathways_jupyter.service import discovery, jobs, names
from pathways_jupyter.session import clusters, protocol, recording
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.verdicts import SessionCommand, verdict

Answer = TypeVar("Answer")
Where = SessionRecord | ConnectConfig

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Workers:
    """The workers of a service or a job: its JobSet's name and its namespace.

    Attributes:
      slices: How many slices there are.
      embedded: Whether they are processes of this machine.
    """

    name: str
    namespace: str
    slices: int
    embedded: bool

    def check(self, number: int) -> None:
        """Refuse a slice that there is not.

        Raises:
          ConfigError: There is no such slice.
        """
        if number not in range(self.slices):
            listed = ", ".join(map(str, range(self.slices))) or "none"
            raise ConfigError(f"{self.name} has no slice {number}.", hint=f"Its slices: {listed}.")


@dataclass(frozen=True)
class FaultTarget:
    """The workers that may be hit.

    Attributes:
      where: The session, or the cluster of a job.
      jobset: The name of the service, or of the job (or its JobSet).
      held: The slices that may be hit; None for all of a job or a service.
    """

    where: Where
    jobset: str
    held: tuple[SessionSlice, ...] | None = None

    def ask(self, question: Callable[[Client, str], Awaitable[Answer]]) -> Answer:
        """Run `question` with a client of the cluster and the namespace; return its result."""
        return clusters.ask(self.where, question)

    def holds(self, number: int) -> bool:
        """Return whether the slice that the service numbers so may be hit."""
        return self.held is None or any(each.number == number for each in self.held)

    def find(self, number: int) -> int:
        """Return the service's number of the slice that a user names by that, or by the session's own.

        Raises:
          ConfigError: It is not one of the session's.
          SessionError: The session has none at the moment: it is suspended, for example, or lost.
        """
        if self.held is None:
            return number
        target = find_slice(self.held, number)
        if not self.held and isinstance(self.where, SessionRecord):
            # Suspended or lost, it has no slices at the moment, whichever is asked for.
            verdict(self.where, SessionCommand.RUN).require()
        if target is None or target.number is None:
            listed = ", ".join(each.numbers for each in self.held if each.number is not None) or "none"
            raise ConfigError(f"Slice {number} is not one of this session's.", hint=f"This session holds: {listed}.")
        return target.number

    def name(self, number: int) -> str:
        """Return the slice that the service numbers so for people, such as ``6 (your 0)``."""
        return next((each.numbers for each in self.held or () if each.number == number), str(number))

    async def workers(self, client: Client, namespace: str, *, yes: bool) -> Workers:
        """Return the workers of the service or the job.

        Raises:
          ConfigError: The cluster is a real one, and `yes` is false.
          PathwaysError: There is no such service or job.
        """
        is_here = clusters.Embedded.of(self.where) is not None
        if isinstance(self.where, SessionRecord) and not self.where.pathways_job:
            service = await discovery.find(client, namespace, self.jobset)
            is_here = is_here or bool(service.embedded)
            on_hosts = Workers(service.name, service.namespace, service.slices, is_here)
        else:
            job = await jobs.find(client, self.jobset, namespace=namespace)
            on_hosts = Workers(job.name, job.namespace, job.slices, is_here)
        if not (on_hosts.embedded or yes):
            raise ConfigError(
                f"{client.cluster.name} is a real cluster: its worker would be hit.", hint="Add --yes to do it."
            )
        return on_hosts

    def note(self, message: str) -> None:
        """Add a fault to the log of the session, if it is one; a failure of that is no failure of the fault."""
        if not isinstance(self.where, SessionRecord):
            return
        try:
            recording.record(
                self.where,
                [Event(EventKind.ELASTIC, message, data={"what": Kind.INJECTED, "tone": Kind.INJECTED.tone})],
            )
        except PathwaysError as error:
            logger.info("the fault is not in the session's log: %s", error)


def of_record(record: SessionRecord) -> FaultTarget:
    """Return the slices of a session of this machine."""
    return FaultTarget(record, record.pathways_job or record.service, record.slices)


async def running(client: Client, of: Workers, number: int) -> list[Object]:
    """Return the running workers of a slice.

    Raises:
      SessionError: It has none.
    """
    labels = ",".join(
        (
            f"{names.JOBSET_NAME_LABEL}={of.name}",
            f"{names.REPLICATED_JOB_LABEL} in ({','.join(names.WORKER_JOBS)})",
            f"{names.JOB_INDEX_LABEL}={number}",
        )
    )
    pods = (await objects.list_(client, objects.PODS, namespace=of.namespace, labels=labels)).items
    alive = [
        pod
        for pod in pods
        if (pod.get("status") or {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
    ]
    if not alive:
        raise SessionError(f"Slice {number} of {of.name} has no running worker.", hint="Wait until it is up.")
    return alive


def to_json(where: Where) -> str:
    """Return `where` as text for another process."""
    if isinstance(where, SessionRecord):
        return json.dumps({"session": where.to_json()})
    return json.dumps({"config": protocol.config_to_json(where)})


def from_json(text: str) -> Where:
    """Parse what :func:`to_json` writes."""
    value: Mapping[str, Any] = json.loads(text)
    if "session" in value:
        return SessionRecord.from_json(value["session"])
    return protocol.config_from_json(value["config"])
