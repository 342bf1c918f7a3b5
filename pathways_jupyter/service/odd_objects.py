"""Find the objects of a namespace that cannot be read in full; see :mod:`.cluster_input`.

What cannot be read is left out of what people see, so it has to be counted and named somewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pathways_jupyter.kube.objects import JOBS, JOBSETS, LEASES, Object
from pathways_jupyter.service import cluster_input, discovery, names, proxy_job
from pathways_jupyter.service.session_figures import SessionFigures

_SHOWN = 40
"""In characters, of a value that cannot be read."""


def oddities(item: Object) -> tuple[str, ...]:
    """Return what cannot be read of a Lease, a Job or a JobSet, each in a few words."""
    found = []
    for name, is_readable in _ANNOTATIONS.items():
        written = cluster_input.raw(item, name)
        if written is not None and not is_readable(item, written):
            found.append(f"annotation {name}={cluster_input.text(written, longest=_SHOWN)}")
    if item.get("kind") == LEASES.kind:
        renewed = (item.get("spec") or {}).get("renewTime")
        if renewed and not cluster_input.time(renewed):
            found.append(f"renewTime {cluster_input.text(renewed, longest=_SHOWN)}")
    elif item.get("kind") == JOBS.kind and (container := proxy_job.container(item)) is not None:
        if discovery.flags(container).get("virtual_slices") and not proxy_job.instances(container):
            found.append("the slices that it asks for")
    elif item.get("kind") == JOBSETS.kind:
        try:
            discovery.read(item, own=True)
        except discovery.Unreadable as error:
            found.append(str(error))
    return tuple(found)


def number_of(items: Iterable[Object]) -> int:
    """Return how many of `items` cannot be read in full."""
    return sum(1 for each in items if oddities(each))


def name_of(item: Object) -> str:
    """Return the kind, the place and the user of an object, in words."""
    user = cluster_input.Whose.of(item).user
    place = f"{item['metadata'].get('namespace') or ''}/{item['metadata'].get('name') or ''}"
    return f"{item.get('kind')} {place}{f' of {user}' if user else ''}"


def _is_line(item: Object, written: object) -> bool:
    return cluster_input.text(written) == written


_ANNOTATIONS: Mapping[str, Callable[[Object, object], bool]] = {
    names.KEEP_ANNOTATION: lambda item, written: cluster_input.keep_seconds(item) > 0 or written == "0",
    names.FIGURES_ANNOTATION: lambda item, written: SessionFigures.read(item) is not None,
    names.NOTEBOOK_ANNOTATION: _is_line,
}
