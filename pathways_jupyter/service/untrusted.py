"""Read what other users write into the cluster: labels, annotations, numbers, times.

Everyone who may create a Job or a Lease in a namespace chooses these freely, so they are input. Text becomes one
printable line of bounded length, numbers are finite and in range, times are times. A value that is none of this counts
as absent: one user's object must not break what all others see. :mod:`.unreadable` finds the objects that have such
values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.base.errors import ClusterError
from pathways_jupyter.base.printable import printable
from pathways_jupyter.kube.credentials import parse_time
from pathways_jupyter.service import names

LONGEST_TEXT = 512
"""In characters; more of an annotation is not shown."""
LONGEST_SECONDS = 2_147_483_647.0
"""The largest duration that Kubernetes stores, in a Lease for example."""
LATEST = 7_258_118_400.0
"""The year 2200, in seconds since the epoch: Python and browsers can show all times until then."""
MOST_SLICES = 10_000
MOST_HOSTS = 100_000
"""Of one service; the model of one has an entry for each, whether it exists or not."""
MOST_RESTARTS = 2**31 - 1
_LONGEST_JSON = 4096
_DECIMAL = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?")


def text(value: object, *, longest: int = LONGEST_TEXT) -> str:
    """Return `value` as one line without control characters, which would act on the terminal that it is shown on."""
    if value is None or isinstance(value, (Mapping, list)):
        return ""
    shown = str(value[: longest + 1] if isinstance(value, str) else value)
    line = printable(shown)
    return line if len(line) <= longest else line[: longest - 1] + "…"


def number(value: object, most: float) -> float | None:
    """Return a number from 0 to `most`, which may be given as decimal digits; None for everything else."""
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # An integer is compared before it is converted: one of 400 digits does not fit into a float. NaN fails both.
    return float(value) if 0 <= value <= most else None


def count(value: object, most: int) -> int | None:
    """Return a whole number from 0 to `most`; None for everything else."""
    checked = number(value, most)
    return int(checked) if checked is not None and checked.is_integer() else None


def time(value: object) -> float:
    """Return a timestamp in seconds since the epoch; 0 if it is none, or not from 1970 to 2200."""
    try:
        return number(parse_time(str(value)), LATEST) or 0.0
    except (ClusterError, OverflowError, ValueError):
        return 0.0


def label(item: Mapping[str, Any], name: str) -> str:
    """Return the value of a label; empty without one."""
    return text((item["metadata"].get("labels") or {}).get(name))


def annotation(item: Mapping[str, Any], name: str, *, longest: int = LONGEST_TEXT) -> str:
    """Return the text of an annotation; empty without one."""
    return text(raw(item, name), longest=longest)


def raw(item: Mapping[str, Any], name: str) -> object:
    """Return an annotation as it was written, for a reader that checks it; None without one."""
    return (item["metadata"].get("annotations") or {}).get(name)


def keep_seconds(item: Mapping[str, Any]) -> float:
    """Return how long a proxy is kept after its Lease was renewed last, while its slices are not needed; 0 for not."""
    return number(raw(item, names.KEEP_ANNOTATION), LONGEST_SECONDS) or 0.0


def suspend_after(item: Mapping[str, Any]) -> float:
    """Return after how many seconds without use a service's sessions are suspended; 0 for never."""
    return number(raw(item, names.SUSPEND_AFTER_ANNOTATION), LONGEST_SECONDS) or 0.0


def controller(pod: Mapping[str, Any]) -> str:
    """Return the name of the Job, or other object, that controls a pod; empty without one."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((text(each.get("name")) for each in owners if each.get("controller")), "")


@dataclass(frozen=True)
class JobSetPosition:
    """The place of a pod in its JobSet.

    Attributes:
      replicated_job: The part of the JobSet, such as the workers.
      job_index: Index of its Job in that part, in digits: of its slice, for a worker.
      host: Its index in its Job.
    """

    jobset: str
    replicated_job: str
    job_index: str
    host: int

    @classmethod
    def of(cls, pod: Mapping[str, Any]) -> JobSetPosition | None:
        """Read it from a pod's labels; None for a pod that no JobSet has made.

        Who may create Jobs may label a pod as a worker or the head of another's service. But the Job of a real one has
        a name that follows from the labels, and names are unique; the API server says which Job made a pod.
        """
        parts = (names.JOBSET_NAME_LABEL, names.REPLICATED_JOB_LABEL, names.JOB_INDEX_LABEL)
        jobset, replicated, index = (label(pod, each) for each in parts)
        if not jobset or controller(pod) != f"{jobset}-{replicated}-{index}":
            return None
        host = label(pod, names.POD_INDEX_LABEL) or annotation(pod, names.POD_INDEX_LABEL)
        return cls(jobset, replicated, index, count(host, MOST_HOSTS) or 0)


def mapping(written: object) -> Mapping[str, Any]:
    """Return a JSON object, whose values are input too; empty for everything else, or for more than 4 KiB."""
    if not isinstance(written, str) or len(written) > _LONGEST_JSON:
        return {}
    try:
        value = json.loads(written)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class SessionLabels:
    """The session that an object belongs to, in its own words; each may be empty.

    Attributes:
      user: Its user label.
      notebook: Path of the notebook.
    """

    session: str
    user: str
    notebook: str

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> SessionLabels:
        """Read it from an object's labels and annotations."""
        notebook = annotation(item, names.NOTEBOOK_ANNOTATION)
        return cls(label(item, names.SESSION_LABEL), label(item, names.USER_LABEL), notebook)
