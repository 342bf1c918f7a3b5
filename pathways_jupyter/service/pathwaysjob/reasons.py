"""Why a job does not run, or has failed, as its pods say it: its own status only says that a pod has failed."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.base.text import count
from pathways_jupyter.service import names, untrusted
from pathways_jupyter.service.podstate import FATAL_REASONS, UNSCHEDULABLE, container_states, waiting

_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r"^ *[|+] ")
"""What is drawn in front of the lines of an exception group."""
_ERROR = re.compile(r"[A-Za-z_][\w.]*(:|$)")


def role(pod: Mapping[str, Any]) -> str:
    """Return what a pod is in its job: ``head``, or ``slice 1 host 0``."""
    if untrusted.label(pod, names.REPLICATED_JOB_LABEL) == names.HEAD_JOB:
        return "head"
    index, host = (untrusted.label(pod, each) or "?" for each in (names.JOB_INDEX_LABEL, names.POD_INDEX_LABEL))
    return f"slice {index} host {host}"


def stuck(pods: Iterable[Mapping[str, Any]]) -> str:
    """Return why a job does not start: its pod with the most serious reason; empty if all are only starting."""
    found = []
    for pod in pods:
        reason, message = waiting(pod)
        if reason in FATAL_REASONS or reason == UNSCHEDULABLE:
            explanation = ": ".join(filter(None, (FATAL_REASONS.get(reason), message)))
            found.append((reason not in FATAL_REASONS, role(pod), f"{reason}: {explanation}".removesuffix(": ")))
    if not found:
        return ""
    _, which, text = min(found)
    others = f" (and {count(len(found) - 1, 'more pod')})" if len(found) > 1 else ""
    return f"{which}: {text}{others}"


@dataclass(frozen=True)
class Failure:
    """The container that made a job fail.

    Attributes:
      place: Where it was, empty for the job's own program.
      ended: How it ended, in words.
    """

    pod: str
    container: str
    place: str
    ended: str

    def reason(self, log: Sequence[str]) -> str:
        """Return the reason: the last error of its log, or else how it ended."""
        said = untrusted.text(last_error(log) or self.ended)
        return f"{self.place}: {said}" if self.place else said


def failure(pods: Iterable[Mapping[str, Any]], message: str, *, main: str) -> Failure | None:
    """Return which container made a job fail; None if no pod is left that says so.

    Args:
      message: The cluster's own message, which often names the Job whose pods failed.
      main: The container of the job's program.
    """
    found = []
    for pod in pods:
        named = (untrusted.label(pod, "job-name") or "-") in message
        sidecars = {
            each["name"] for each in pod["spec"].get("initContainers") or () if each.get("restartPolicy") == "Always"
        }
        for name, state in container_states(pod):
            ended = state.get("terminated") or {}
            if ended.get("exitCode"):
                # Sidecars are ended after the others, and then often with a code too.
                found.append((not named, name in sidecars, str(ended.get("finishedAt")), name, pod, ended))
    if not found:
        return None
    *_, name, pod, ended = min(found, key=lambda each: each[:4])
    where, code = role(pod), int(ended["exitCode"])
    number = code - 128
    named_signal = f" ({signal.Signals(number).name})" if number in {*signal.Signals} else ""
    known = [ended.get("reason") if ended.get("reason") != "Error" else "", ended.get("message")]
    said = ", ".join(filter(None, (*known, f"exit code {code}{named_signal}")))
    place = "" if where == "head" and name == main else f"{where}, container {name}"
    return Failure(pod["metadata"]["name"], name, place, said)


def last_error(log: Sequence[str]) -> str:
    """Return the last line of the last Python traceback in a log; empty without one."""
    lines = [_FRAME.sub("", line) for line in log]
    starts = [number for number, line in enumerate(lines) if line.rstrip().endswith(_TRACEBACK)]
    for line in lines[starts[-1] + 1 :] if starts else ():
        if _ERROR.match(line):
            return line.strip()
    return ""
