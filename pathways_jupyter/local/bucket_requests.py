"""Requests that the bucket's server handles itself, around the handlers of gcp-storage-emulator.

The emulator ignores what it does not know of a request: a listing that should have been of some objects is then of all,
and a write that should not have replaced an object does. Here each query parameter is served, changes nothing but the
form of an answer, or is refused.
"""

from __future__ import annotations

import bisect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any

from gcp_storage_emulator.exceptions import BadRequest, NotFound
from gcp_storage_emulator.handlers import objects

Serve = Callable[[Any, Any, Any], None]
"""A handler of the emulator: takes a request, its response and the storage."""

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_LARGEST_PAGE = 1000
_LONGEST_NAME = 1024
_LONGEST_PART = 255
"""In bytes: of an object's name as Google's, and between two of its slashes, as that of a file."""

# TensorStore adds a number against caches.
_FORM = frozenset({"alt", "fields", "key", "prettyPrint", "projection", "quotaUser", "tensorstore", "userProject"})
_LISTING = frozenset({"delimiter", "endOffset", "matchGlob", "maxResults", "pageToken", "prefix", "startOffset"})
_CONDITIONS = {
    "ifGenerationMatch": ("generation", True),
    "ifGenerationNotMatch": ("generation", False),
    "ifMetagenerationMatch": ("metageneration", True),
    "ifMetagenerationNotMatch": ("metageneration", False),
}
_OTHERS = frozenset(
    {
        *_CONDITIONS,
        "contentEncoding",
        "generation",
        "name",
        "permissions",
        "project",
        "response-content-disposition",
        "uploadType",
        "upload_id",
    }
)
_OFF = frozenset({"includeFoldersAsPrefixes", "includeTrailingDelimiter", "softDeleted", "versions"})
"""Served only if they are false, which they are by default."""


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


def check_name(name: str) -> None:
    """Refuse an object's name that no file can have.

    Raises:
      BadRequest: From the emulator; the answer is 400.
    """
    parts = name.removesuffix("/").replace("\\", "//").split("/")
    if len(name.encode()) > _LONGEST_NAME:
        raise BadRequest(f"An object's name can have {_LONGEST_NAME} bytes at most.")
    if any(each in ("", ".", "..") for each in parts) or "\0" in name:
        raise BadRequest(
            "In the embedded cluster's bucket, no part of an object's name can be empty, '.' or '..',"
            " or have a backslash."
        )
    if any(len(each.encode()) > _LONGEST_PART for each in parts):
        raise BadRequest(
            "In the embedded cluster's bucket, what is between two slashes of an object's name can have"
            f" {_LONGEST_PART} bytes at most, as a file's name."
        )


def routes(prefix: str, handlers: list[tuple[str, Mapping[str, Serve]]]) -> list[tuple[str, dict[str, Serve]]]:
    """Return the emulator's routes with what is served here instead, and everything checked."""
    bucket = f"^{prefix}/b/(?P<bucket_name>[^/]+)/o"
    move = f"{bucket}/(?P<object_id>.+)/moveTo/o/(?P<dest_object_id>.+)$"
    own: list[tuple[str, Mapping[str, Serve]]] = [
        (f"{bucket}$", {"GET": _list, "POST": objects.insert}),
        (move, {"POST": _move}),
    ]
    return [
        (path, {method: partial(_checked, serve.get(method, _not_served)) for method in _METHODS})
        for path, serve in (*own, *handlers, (".*", {}))
    ]


def _checked(serve: Serve, request: Any, response: Any, storage: Any) -> None:
    try:
        query = {name: values[0] for name, values in request.query.items()}
        allowed = _LISTING if serve is _list else _OTHERS
        for name, value in query.items():
            if name not in allowed | _FORM and (name not in _OFF or value.lower() != "false"):
                raise BadRequest(f"The embedded cluster's bucket does not serve {name}={value} in this request.")
        _check_conditions(request, query, storage)
        serve(request, response, storage)
    except _Refused as error:
        _refuse(request, response, error.status, str(error))
    except NotFound:
        _refuse(request, response, HTTPStatus.NOT_FOUND, "There is no such object or bucket.")
    except BadRequest as error:
        _refuse(request, response, HTTPStatus.BAD_REQUEST, str(error))
    except OSError as error:
        message = f"The embedded cluster's bucket keeps objects as files, and cannot keep this one: {error.strerror}."
        _refuse(request, response, HTTPStatus.BAD_REQUEST, message)
    except (LookupError, TypeError, ValueError) as error:
        _refuse(request, response, HTTPStatus.BAD_REQUEST, f"Malformed request ({type(error).__name__}: {error}).")


def _refuse(request: Any, response: Any, status: HTTPStatus, message: str) -> None:
    # A client that still sends would take the end of its connection for an error.
    _ = request.data
    response.status = status
    if status is not HTTPStatus.NOT_MODIFIED:
        response.json({"error": {"code": int(status), "message": message, "errors": [{"message": message}]}})


def _not_served(request: Any, response: Any, storage: Any) -> None:
    del response, storage
    raise BadRequest(f"The embedded cluster's bucket does not serve {request.method} {request.path}.")


def _check_conditions(request: Any, query: Mapping[str, str], storage: Any) -> None:
    """Refuse a request for another generation of an object than the one that is there; 0 is for none."""
    conditions = {name: value for name, value in query.items() if name in _CONDITIONS or name == "generation"}
    if not conditions:
        return
    name = request.params.get("dest_object_id") or request.params.get("object_id") or query.get("name")
    if not name and isinstance(request.data, dict):
        # What an upload says of its object.
        name = request.data.get("name") or request.data.get("meta", {}).get("name")
    if not name and (upload := query.get("upload_id")):
        # A later part of it, of the same address and so on the same condition.
        name = storage.get_resumable_file_obj(upload)["name"]
    if not name:
        raise BadRequest(f"The embedded cluster's bucket does not serve {next(iter(conditions))} in this request.")
    bucket = request.params.get("dest_bucket_name") or request.params["bucket_name"]
    described = storage.objects.get(bucket, {}).get(name, {})
    for condition, value in conditions.items():
        if condition == "generation":
            if described.get("generation") != value:
                raise _Refused(HTTPStatus.NOT_FOUND, f"There is no generation {value} of {name}.")
            continue
        field, is_wanted = _CONDITIONS[condition]
        if (described.get(field, "0") == value) is not is_wanted:
            unchanged = request.method == "GET" and not is_wanted
            status = HTTPStatus.NOT_MODIFIED if unchanged else HTTPStatus.PRECONDITION_FAILED
            raise _Refused(status, f"{condition}={value} does not hold for {name}.")


def _list(request: Any, response: Any, storage: Any) -> None:
    """Serve ``objects.list``: the emulator has no pages, and no offsets, without which TensorStore deletes too much."""
    query = {name: values[0] for name, values in request.query.items()}
    start, end = query.get("startOffset", ""), query.get("endOffset") or chr(sys.maxunicode)
    largest = min(int(query.get("maxResults", _LARGEST_PAGE)), _LARGEST_PAGE)
    if largest < 1:
        raise BadRequest("maxResults must be at least 1.")
    chosen = request.params["bucket_name"], query.get("prefix")
    files, prefixes = storage.get_file_list(*chosen, query.get("delimiter"), query.get("matchGlob"))
    objects_below = storage.get_file_list(*chosen, None, query.get("matchGlob"))[0] if prefixes else ()
    below = [each["name"] for each in objects_below]
    entries: dict[str, Any] = {each["name"]: each for each in files if start <= each["name"] < end}
    for each in prefixes:
        # Offsets are of objects: a prefix that sorts before `start` can stand for objects after it.
        first = bisect.bisect_left(below, max(each, start))
        if first < len(below) and below[first].startswith(each) and below[first] < end:
            entries[each] = None
    # A token is the last name of the page before.
    after = query.get("pageToken", "")
    names = sorted(each for each in entries if each > after)
    page = names[:largest]
    answer: dict[str, Any] = {
        "kind": "storage#objects",
        "prefixes": [each for each in page if entries[each] is None],
        "items": [entries[each] for each in page if entries[each] is not None],
    }
    if len(names) > largest:
        answer["nextPageToken"] = page[-1]
    response.json(answer)


def download(serve: Serve, request: Any, response: Any, storage: Any) -> None:
    """Serve an object's content with its generation, without which TensorStore cannot read it a second time."""
    serve(request, response, storage)
    if response.status < HTTPStatus.BAD_REQUEST:
        described = storage.get_file_obj(request.params["bucket_name"], request.params["object_id"])
        response["X-Goog-Generation"] = described["generation"]


def _move(request: Any, response: Any, storage: Any) -> None:
    """Serve ``objects.move``, which the emulator does not know."""
    bucket, source, target = (request.params[each] for each in ("bucket_name", "object_id", "dest_object_id"))
    if source == target:
        raise BadRequest("An object cannot be moved onto itself.")
    response.json(objects._copy(request.base_url, storage, bucket, source, bucket, target))
    storage.delete_file(bucket, source)
