"""What a request must fulfil before anything is done for it: who sent it, and what it may contain.

Jupyter's own checks leave a gap that matters here. Its login cookie has no SameSite attribute, so a browser sends it
when a link on any other site is followed, and Jupyter asks for an XSRF token only where something is written. A reading
route of this extension reaches a cluster with the user's credentials, so it asks for what a writing route asks for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from tornado.httputil import HTTPServerRequest

from pathways_jupyter.errors import ConfigError

LONGEST_BODY_BYTES = 64 * 1024
LONGEST_MESSAGE_BYTES = 64 * 1024
"""Of a page's WebSocket; the longest that a page sends names a context."""

_RELOAD = "Reload the page, and try again."
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")


class SameSiteMixin:
    """Refuses requests that another site made a browser send, whatever they carry and whatever they ask for."""

    async def prepare(self: Any) -> None:
        """Called by tornado before the request's method."""
        # Before the user is looked up: nothing of this request is of interest, and the answer is the same for all.
        if is_cross_site(self):
            self.set_status(403)
            message = "This request was made by a page of another site, and is refused."
            self.finish(json.dumps({"message": message, "hint": "Use the sidebar of this JupyterLab."}))
            return
        await super().prepare()  # type: ignore[misc]


def is_cross_site(handler: Any) -> bool:
    """Whether the browser says that another site made it send this request, and the configuration does not allow that.

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
    """Return the JSON object that is a request's body; an empty one for an empty body.

    Raises:
      ConfigError: The body is too long, or something else.
    """
    if len(body) > LONGEST_BODY_BYTES:
        raise ConfigError(
            f"The request has {len(body)} bytes; {LONGEST_BODY_BYTES} are accepted.",
            hint="A request of the sidebar is much shorter.",
        )
    try:
        value = json.loads(body or b"{}")
    except RecursionError as error:
        raise ConfigError("The request is nested too deeply.", hint=_RELOAD) from error
    except ValueError as error:
        raise ConfigError("The request is not JSON.", hint=_RELOAD) from error
    if not isinstance(value, dict):
        raise ConfigError("The request is not a JSON object.", hint=_RELOAD)
    return value


def query(request: HTTPServerRequest) -> dict[str, str]:
    """Return the parameters in a request's URL.

    Raises:
      ConfigError: One of them is given twice, or is not text.
    """
    values: dict[str, str] = {}
    for name, given in request.query_arguments.items():
        if name in {"_xsrf", "token"} or (name.isdecimal() and not any(given)):
            # Jupyter's own: credentials, and the time that its front end appends where caches are to be passed by.
            continue
        if len(given) > 1:
            raise ConfigError(f"Parameter {name!r} is given {len(given)} times.", hint="Give it once.")
        try:
            values[name] = given[0].decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"Parameter {name!r} is not UTF-8.", hint=_RELOAD) from error
    return values


def known(given: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return `given`, all of whose names are among `names`.

    Raises:
      ConfigError: One is not.
    """
    allowed = sorted(names)
    if unknown := sorted(set(given) - set(allowed)):
        takes = f"This route takes {', '.join(allowed)}." if allowed else "This route takes no parameters."
        raise ConfigError(f"Unknown parameter {unknown[0]!r}.", hint=takes)
    return given


def pod_name(name: str) -> str:
    """Return `name`, which could be that of a pod.

    Raises:
      ConfigError: It could not.
    """
    if len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
        raise ConfigError(f"{_shortened(name)} is not the name of a pod.", hint="Names are lower-case DNS names.")
    return name


def container_name(name: str) -> str:
    """Return `name`, which could be that of a container.

    Raises:
      ConfigError: It could not.
    """
    if len(name) > 63 or not re.fullmatch(_LABEL, name):
        raise ConfigError(
            f"{_shortened(name)} is not the name of a container.", hint="Names are lower-case DNS labels."
        )
    return name


def _shortened(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:80]}…")
