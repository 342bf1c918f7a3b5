"""What a request asks for beside its object: selectors, a dry run, how to delete."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from pathways_jupyter.local.apiserver import api_errors, bodies
from pathways_jupyter.local.apiserver.resources import ResourceType
from pathways_jupyter.local.apiserver.route import number
from pathways_jupyter.local.apiserver.selectors import Test, all_of, field_test, label_test

_DELETE_OPTIONS = {
    "gracePeriodSeconds": int,
    "propagationPolicy": str,
    "orphanDependents": bool,
    "preconditions": dict,
    "dryRun": list,
}


_PROPAGATIONS = ("", "Orphan", "Background", "Foreground")


@dataclass(frozen=True)
class Deletion:
    """Delete options of a request, from the query or the body."""

    grace: int | None = None
    propagation: str = ""
    uid: str = ""
    revision: str = ""
    dry_run: bool = False


def selection(request: web.BaseRequest, resource: ResourceType) -> Test | None:
    """The test of a request's selectors, or None.

    Raises:
      StatusError: 400.
    """
    labels, fields = request.query.get("labelSelector", ""), request.query.get("fieldSelector", "")
    return all_of(label_test(labels) if labels else None, field_test(fields, resource) if fields else None)


def is_dry_run(request: web.BaseRequest) -> bool:
    """Whether the request is a dry run.

    Raises:
      StatusError: 400, the query asks for a kind of dry run that does not exist.
    """
    values = request.query.getall("dryRun", [])
    if any(value != "All" for value in values):
        raise api_errors.bad_request(f'dryRun: Unsupported value: "{values[0]}": supported values: "All"')
    return bool(values)


async def read_deletion(request: web.BaseRequest) -> Deletion:
    """Read the delete options; the query takes precedence over the body.

    Raises:
      StatusError: 400.
    """
    body = await bodies.read_object(request, optional=True)
    for field, kind in _DELETE_OPTIONS.items():
        value = body.get(field)
        if value is not None and type(value) is not kind:
            raise api_errors.bad_request(f"{field} of the delete options has a value of the wrong type")
    preconditions = body.get("preconditions") or {}
    grace = number(request.query, "gracePeriodSeconds")
    if grace is None:
        grace = body.get("gracePeriodSeconds")
    propagation = request.query.get("propagationPolicy") or body.get("propagationPolicy") or ""
    if body.get("orphanDependents") is not None:
        propagation = "Orphan" if body["orphanDependents"] else "Background"
    if (grace is not None and grace < 0) or propagation not in _PROPAGATIONS:
        raise api_errors.bad_request("these delete options are not valid")
    dry_run = is_dry_run(request) or body.get("dryRun") == ["All"]
    uid, revision = (str(preconditions.get(key) or "") for key in ("uid", "resourceVersion"))
    return Deletion(grace, propagation, uid, revision, dry_run)
