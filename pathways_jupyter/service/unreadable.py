"""Unreadable objects of a namespace; see :mod:`.untrusted`.

What cannot be read is left out of what people see, so it has to be counted and named somewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pathways_jupyter.kube.objects import JOBS, JOBSETS, LEASES, Object
from pathways_jupyter.service import discovery, names, proxy_job, untrusted
from pathways_jupyter.service.session_figures import SessionFigures

_SHOWN = 40
"""In characters, of a value that cannot be read."""


def values_of(item: Object) -> tuple[str, ...]:
    """Return what cannot be read of a Lease, a Job or a JobSet, each in a few words."""
    problems = []
    for name, is_readable in _ANNOTATIONS.items():
        written = untrusted.raw(item, name)
        if written is not None and not is_readable(item, written):
            problems.append(f"annotation {name}={untrusted.text(written, longest=_SHOWN)}")
    if item.get("kind") == LEASES.kind:
        renewed = (item.get("spec") or {}).get("renewTime")
        if renewed and not untrusted.time(renewed):
            problems.append(f"renewTime {untrusted.text(renewed, longest=_SHOWN)}")
    elif item.get("kind") == JOBS.kind and (container := proxy_job.container(item)) is not None:
        if discovery.flags(container).get("virtual_slices") and not proxy_job.instances(container):
            problems.append("the slices that it asks for")
    elif item.get("kind") == JOBSETS.kind:
        try:
            discovery.read(item, own=True)
        except discovery.Unreadable as error:
            problems.append(str(error))
    return tuple(problems)


def number_of(items: Iterable[Object]) -> int:
    """Return how many of `items` cannot be read in full."""
    return sum(1 for each in items if values_of(each))


def name_of(item: Object) -> str:
    """Return the kind, the place and the user of an object, in words."""
    user = untrusted.SessionLabels.of(item).user
    path = f"{item['metadata'].get('namespace') or ''}/{item['metadata'].get('name') or ''}"
    return f"{item.get('kind')} {path}{f' of {user}' if user else ''}"


_ANNOTATIONS: Mapping[str, Callable[[Object, object], bool]] = {
    names.SUSPEND_AFTER_ANNOTATION: lambda item, written: untrusted.suspend_after(item) > 0 or written == "0",
    names.KEEP_ANNOTATION: lambda item, written: untrusted.keep_seconds(item) > 0 or written == "0",
    names.FIGURES_ANNOTATION: lambda item, written: SessionFigures.read(item) is not None,
    names.NOTEBOOK_ANNOTATION: lambda item, written: untrusted.text(written) == written,
}
