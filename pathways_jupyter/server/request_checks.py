"""Validation of requests: where they come from, and what they contain.

Jupyter's own checks leave a gap that matters here. Its login cookie has no SameSite attribute, so a browser sends it
when the user follows a link on any other site, and Jupyter requires an XSRF token only for requests that write. A GET
route of this extension accesses a cluster with the user's credentials, so it requires the same as a writing route.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from tornado.httputil import HTTPServerRequest

from pathways_jupyter.base.errors import ConfigError

RESOURCE = "pathways"
"""The name of the routes' resource in authorizers."""
LONGEST_MESSAGE_BYTES = 64 * 1024
"""Limit for a page's WebSocket; the longest message that a page sends contains the name of a context."""

RELOAD = "Reload the page, and try again."
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")


class SameSiteMixin:
    """Refuses all requests that another site made a browser send."""

    async def prepare(self: Any) -> None:
        """Check a request before its method runs; tornado calls this."""
        # Before the user is looked up: the answer is the same for all users.
        if is_cross_site(self):
            self.set_status(403)
            message = "The request was refused: it comes from a page of another site."
            self.finish(json.dumps({"message": message, "hint": "Use the sidebar of this JupyterLab."}))
            return
        await super().prepare()  # type: ignore[misc]


def is_cross_site(handler: Any) -> bool:
    """Return whether another site made the browser send this request, and the configuration does not allow that.

    A browser sets ``Sec-Fetch-Site`` itself and no page can change it. Navigations carry no ``Origin`` and cannot be
    allowed; a front end on another site, which ``ServerApp.allow_origin`` or ``allow_origin_pat`` names, does.
    """
    headers = handler.request.headers
    if headers.get("Sec-Fetch-Site", "").lower() != "cross-site":
        return False
    origin = headers.get("Origin", "").lower()
    if not origin:
        return True
    pattern = handler.allow_origin_pat
    return not (handler.allow_origin in {"*", origin} or (pattern and re.match(pattern, origin)))


def json_object(body: bytes) -> dict[str, Any]:
    """Return a request's body as a JSON object; an empty one for an empty body.

    Raises:
      ConfigError: It is none.
    """
    try:
        value = json.loads(body or b"{}")
    except (RecursionError, ValueError) as error:
        problem = "nested too deeply" if isinstance(error, RecursionError) else "not JSON"
        raise ConfigError(f"The request is {problem}.", hint=RELOAD) from error
    if not isinstance(value, dict):
        raise ConfigError("The request is not a JSON object.", hint=RELOAD)
    return value


def query(request: HTTPServerRequest) -> dict[str, str]:
    """Return the parameters in a request's URL.

    Raises:
      ConfigError: A parameter is given twice, or is not UTF-8.
    """
    values: dict[str, str] = {}
    for name, given in request.query_arguments.items():
        if name in {"_xsrf", "token"} or (name.isdecimal() and not any(given)):
            # Added by Jupyter: credentials, and the timestamp that its front end appends to bypass caches.
            continue
        if len(given) > 1:
            raise ConfigError(f"Parameter {name!r} is given {len(given)} times.", hint="Give it once.")
        try:
            values[name] = given[0].decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"Parameter {name!r} is not UTF-8.", hint=RELOAD) from error
    return values


def checked(parameters: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return `parameters` if all its names are among `names`.

    Raises:
      ConfigError: A name is not.
    """
    allowed = sorted(names)
    if unknown := sorted(set(parameters) - set(allowed)):
        takes = f"This route takes {', '.join(allowed)}." if allowed else "This route takes no parameters."
        raise ConfigError(f"Unknown parameter {unknown[0]!r}.", hint=takes)
    return parameters


def object_name(name: str, kind: str) -> str:
    """Return `name` if it is a valid name of an object or a container; `kind` says of what: ``pod``, ``job``.

    Raises:
      ConfigError: It is not.
    """
    if len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
        shortened = name if len(name) <= 80 else f"{name[:80]}…"
        raise ConfigError(f"{shortened!r} is not the name of a {kind}.", hint="Names are lower-case DNS names.")
    return name
