"""Description of a job, its pods and their events, and why it does not run, read from their objects.

A job's own status only says that a pod has failed; its pods say why.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from pathways_jupyter.base import text, tpu
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.kube.objects import JOBSETS, created
from pathways_jupyter.service import discovery, names, queues, untrusted
from pathways_jupyter.service.pathwaysjob import conditions, definition, obstacles
from pathways_jupyter.service.podstate import FATAL_REASONS, UNSCHEDULABLE, container_states, restarts, waiting

_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r"^ *[|+] ")
"""Frame that is drawn in front of the lines of an exception group."""
_ERROR = re.compile(r"[A-Za-z_][\w.]*(:|$)")
_LAST_LINES = 10
"""Lines of a log without a traceback that can say what went wrong: launchers say a few words after their program."""
_KILLED = frozenset({128 + signal.SIGKILL, 128 + signal.SIGTERM})
"""Exit codes of a program that was ended from outside, whatever errors it had logged before."""
_PROGRAMS = frozenset({names.RESOURCE_MANAGER_CONTAINER, names.PROXY_CONTAINER})


@dataclass(frozen=True)
class JobInfo:
    """One job.

    Attributes:
      state: Pending, Running, Suspended, Completed or Failed.
      reason: Why it is in that state, in the cluster's words; :func:`pathways_jupyter.service.jobs.details` adds what
        its pods say.
      headless: Whether a notebook can attach to its proxy.
      kind: ``PathwaysJob``, or ``JobSet`` for a job that is nothing but its JobSet.
      created: Seconds since the epoch, by the cluster's clock.
      clock_ahead: By how many seconds this machine's clock is ahead of that.
      queue: The queue of Kueue's that it is in; empty for none.
      unset: Variables that Pathways' containers refer to and do not set, such as ``pathways-proxy: $(PATHWAYS_HEAD)``.
      demands_alts: Whether it is headless, and on Google Cloud its proxy accepts only clients with ALTS, which no
        tunnel has.
    """

    name: str
    namespace: str
    state: str
    reason: str
    restarts: int
    instance_type: str
    slices: int
    headless: bool
    kind: str
    created: float
    queue: str = ""
    unset: tuple[str, ...] = ()
    demands_alts: bool = False
    clock_ahead: int = 0


@dataclass(frozen=True)
class PodInfo:
    """One pod of a job: its role (``head``, or ``slice 1 host 0``) and what it does."""

    name: str
    role: str
    state: str
    restarts: int
    node: str


@dataclass(frozen=True)
class EventInfo:
    """One event about a job, its JobSet or its pods."""

    time: float
    about: str
    reason: str
    message: str
    warning: bool


def is_job(manifest: Mapping[str, Any]) -> bool:
    """Return whether a PathwaysJob or a JobSet is a job that users know by its name.

    A JobSet is one by its parts, whichever tool made it: a head with a resource manager and a proxy, which no service
    has, and workers. With an owner it is part of a PathwaysJob, which may have been deleted a moment ago.
    """
    if manifest["kind"] == definition.KIND:
        return True
    if manifest["metadata"].get("ownerReferences"):
        return False
    parts = {str(each.get("name")) for each in (manifest.get("spec") or {}).get("replicatedJobs") or ()}
    missing = _PROGRAMS - {str(each.get("name")) for each in _containers(_head_pod(manifest))}
    return not missing and not parts.isdisjoint(names.WORKER_JOBS)


def job_info(manifest: Mapping[str, Any], jobset: Mapping[str, Any] | None = None) -> JobInfo:
    """Describe a job by its PathwaysJob, or by the JobSet that it is; see :func:`is_job`.

    Args:
      jobset: The JobSet of a PathwaysJob, which has the containers that the controller adds; None if it is not known.
    """
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    is_own_kind = manifest["kind"] == definition.KIND
    if not is_own_kind:
        status = conditions.derive({}, manifest, now="")
    state, condition = conditions.current({"status": status})
    kind, slices, headless = _read_job(manifest) if is_own_kind else _read_jobset(manifest)
    parts = (manifest if jobset is None else jobset).get("spec") or {}
    containers = [each for part in parts.get("replicatedJobs") or () for each in _containers(_pod_of(part))]
    return JobInfo(
        name=metadata["name"],
        namespace=metadata.get("namespace") or "",
        state=state,
        reason=untrusted.text(condition.get("message")),
        restarts=untrusted.count(status.get("restarts"), untrusted.MOST_RESTARTS) or 0,
        instance_type=kind,
        slices=slices,
        headless=headless,
        kind=definition.KIND if is_own_kind else JOBSETS.kind,
        created=created(manifest),
        queue=queues.queue_of(manifest),
        unset=obstacles.unset_references(containers),
        demands_alts=headless and obstacles.demands_alts(containers),
    )


def _read_job(manifest: Mapping[str, Any]) -> tuple[str, int, bool]:
    try:
        (slices,), controller = manifest["spec"]["workers"], manifest["spec"]["controller"]
        kind = tpu.parse_instance_type(f"{slices['type']}:{slices['topology']}")
        return str(kind), int(slices["numSlices"]), controller.get("template") is None
    except (ConfigError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
        # An API server with another definition may store anything.
        return "", 0, False


def _read_jobset(jobset: Mapping[str, Any]) -> tuple[str, int, bool]:
    pod = _head_pod(jobset)
    # In a job with a program of its own the proxy is a sidecar.
    headless = any(each.get("name") == names.PROXY_CONTAINER for each in pod.get("containers") or ())
    # Not as a service, whose numbers must make sense: a job with others is one of its author's, and is shown.
    managers = [each for each in _containers(pod) if each.get("name") == names.RESOURCE_MANAGER_CONTAINER]
    said = discovery.flags(managers[0]) if managers else {}
    slices = untrusted.count(said.get("instance_count"), untrusted.MOST_SLICES) or 0
    return tpu.canonical(untrusted.text(said.get("instance_type"))), slices, headless


def _head_pod(jobset: Mapping[str, Any]) -> Mapping[str, Any]:
    for each in (jobset.get("spec") or {}).get("replicatedJobs") or ():
        if each.get("name") == names.HEAD_JOB:
            return _pod_of(each)
    return {}


def _pod_of(replicated: Mapping[str, Any]) -> Mapping[str, Any]:
    # A JobSet is stored also without any of these.
    job: Mapping[str, Any] = (replicated.get("template") or {}).get("spec") or {}
    pod: Mapping[str, Any] = (job.get("template") or {}).get("spec") or {}
    return pod


def _containers(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]


def main_container(manifest: Mapping[str, Any]) -> str:
    """Return the name of the container of the job's own program."""
    if manifest["kind"] == definition.KIND:
        controller = (manifest.get("spec") or {}).get("controller") or {}
        return str(controller.get("mainContainerName") or definition.MAIN_CONTAINER)
    containers = [str(each.get("name")) for each in _head_pod(manifest).get("containers") or ()]
    # Other tools give it a name of their own.
    containers = [each for each in containers if each not in _PROGRAMS]
    return containers[0] if containers and definition.MAIN_CONTAINER not in containers else definition.MAIN_CONTAINER


def pod_info(pod: Mapping[str, Any]) -> PodInfo:
    """Describe a pod of a job."""
    return PodInfo(
        name=pod["metadata"]["name"],
        role=role(pod),
        state=waiting(pod)[0] or str((pod.get("status") or {}).get("phase") or "Pending"),
        restarts=restarts(pod),
        node=str(pod["spec"].get("nodeName") or ""),
    )


def event_info(event: Mapping[str, Any]) -> EventInfo:
    """Describe an event; its time is 0 if it has none."""
    involved = event.get("involvedObject") or {}
    times = (event.get("lastTimestamp"), event.get("eventTime"), event["metadata"].get("creationTimestamp"))
    return EventInfo(
        time=next(filter(None, map(untrusted.time, times)), 0.0),
        about=untrusted.text(f"{involved.get('kind', '')} {involved.get('name', '')}"),
        reason=untrusted.text(event.get("reason")),
        message=untrusted.text(event.get("message")),
        warning=event.get("type") == "Warning",
    )


def role(pod: Mapping[str, Any]) -> str:
    """Return what a pod is in its job: ``head``, or ``slice 1 host 0``."""
    part = untrusted.label(pod, names.REPLICATED_JOB_LABEL)
    if part == names.HEAD_JOB:
        return "head"
    index, host = (untrusted.label(pod, each) or "?" for each in (names.JOB_INDEX_LABEL, names.POD_INDEX_LABEL))
    return f"{'slice' if part in names.WORKER_JOBS else part} {index} host {host}"


def stuck(pods: Iterable[Mapping[str, Any]]) -> str:
    """Return why a job does not start: its pod with the most serious reason; empty if all are only starting."""
    reasons = []
    for pod in pods:
        reason, message = waiting(pod)
        if reason in FATAL_REASONS or reason == UNSCHEDULABLE:
            explanation = ": ".join(filter(None, (FATAL_REASONS.get(reason), message)))
            reasons.append((reason not in FATAL_REASONS, role(pod), f"{reason}: {explanation}".removesuffix(": ")))
    if not reasons:
        return ""
    _, which, why = min(reasons)
    others = f" (and {text.count(len(reasons) - 1, 'more pod')})" if len(reasons) > 1 else ""
    return f"{which}: {why}{others}"


def refused(events: Sequence[Mapping[str, Any]], lacking: Mapping[str, float]) -> str:
    """Return why parts of a job cannot be made: the last warning about an object that lacks some; empty without one.

    Args:
      events: In order.
      lacking: The uids of these objects, and when each made its last part; a warning from before that is settled.
    """
    for each in reversed(events):
        event, uid = event_info(each), str((each.get("involvedObject") or {}).get("uid"))
        if event.warning and uid in lacking and event.time >= lacking[uid]:
            return f"{event.about}: {event.reason}: {event.message}"
    return ""


def unready(pods: Iterable[Mapping[str, Any]]) -> str:
    """Return why a job's workers are not made: a container of the head has ended; empty if none has.

    They are made once the head is ready, as a pod is while all of its containers run.
    """
    for pod in pods:
        status = pod.get("status") or {}
        states = {str(each.get("name")): each.get("state") or {} for each in status.get("containerStatuses") or ()}
        ended = [name for name, state in states.items() if state.get("terminated")]
        if role(pod) == "head" and status.get("phase") == "Running" and ended:
            which = f"{text.some(ended)} {'has' if len(ended) == 1 else 'have'} ended"
            return f"head: {which}, and workers wait until all of its containers run; initContainers may end before"
    return ""


@dataclass(frozen=True)
class ContainerFailure:
    """The container that made a job fail.

    Attributes:
      place: Where it was, empty for the job's own program.
      ended: How it ended, in words.
      has_log: Whether it ran and ended by itself, so that its log says why.
    """

    pod: str
    container: str
    place: str
    ended: str
    has_log: bool = True

    def reason(self, log: Sequence[str]) -> str:
        """Return the reason: the last error of its log, or else how it ended and what its log says last."""
        said = self.ended
        if self.has_log and (error := last_error(log)):
            said = error
        elif self.has_log and (line := text.reason("\n".join(list(filter(str.strip, log))[-_LAST_LINES:]))):
            said = f"{self.ended}; its log says: {line}"
        return untrusted.text(f"{self.place}: {said}" if self.place else said)


def failure(pods: Iterable[Mapping[str, Any]], message: str, *, main: str) -> ContainerFailure | None:
    """Return which container made a job fail; None if no pod is left that says so.

    Args:
      message: The cluster's own message, which often names the Job whose pods failed.
      main: The container of the job's program.
    """
    failures = []
    for pod in pods:
        named = (untrusted.label(pod, "job-name") or "-") in message
        phase = (pod.get("status") or {}).get("phase")
        sidecars = {
            each["name"] for each in pod["spec"].get("initContainers") or () if each.get("restartPolicy") == "Always"
        }
        for name, state in container_states(pod):
            ended = state.get("terminated") or {}
            if ended.get("exitCode"):
                # Sidecars are ended after the others, and then often with a code too.
                rank = _Rank.SIDECAR if name in sidecars else _Rank.ENDED
            elif state.get("waiting") and phase == "Failed" and name not in sidecars:
                # Behind an init container that failed, all others wait too.
                rank = _Rank.NEVER_STARTED
            else:
                continue
            failures.append((not named, rank, str(ended.get("finishedAt")), name != main, name, pod, state))
    if not failures:
        return None
    *_, name, pod, state = min(failures, key=lambda each: each[:5])
    where = role(pod)
    position = "" if where == "head" and name == main else f"{where}, container {name}"
    # The kubelet's own reason to end a pod, such as Evicted, explains the exit codes of its containers.
    reasons = [(pod.get("status") or {}).get(each) for each in ("reason", "message")]
    ended, waits = state.get("terminated") or {}, state.get("waiting") or {}
    if not ended:
        why = ": ".join(filter(None, (untrusted.text(waits.get("reason")), untrusted.text(waits.get("message")))))
        said = ", ".join(filter(None, (*reasons, f"it never started ({why or 'no reason is known'})")))
        return ContainerFailure(pod["metadata"]["name"], name, position, said, has_log=False)
    code = int(ended["exitCode"])
    number = code - 128
    named_signal = f" ({signal.Signals(number).name})" if number in {*signal.Signals} else ""
    reasons += [ended.get("reason") if ended.get("reason") != "Error" else "", ended.get("message")]
    said = ", ".join(filter(None, (*reasons, f"exit code {code}{named_signal}")))
    return ContainerFailure(pod["metadata"]["name"], name, position, said, has_log=code not in _KILLED)


class _Rank(IntEnum):
    """Rank of a failed pod's containers as the cause of the failure, the likeliest first."""

    ENDED = 0
    NEVER_STARTED = 1
    SIDECAR = 2


def last_error(log: Sequence[str]) -> str:
    """Return the last line of the last Python traceback in a log; empty without one."""
    lines = [_FRAME.sub("", line) for line in log]
    starts = [number for number, line in enumerate(lines) if line.rstrip().endswith(_TRACEBACK)]
    for line in lines[starts[-1] + 1 :] if starts else ():
        if _ERROR.match(line):
            return line.strip()
    return ""
