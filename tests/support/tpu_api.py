"""A Cloud TPU API on loopback: nodes in JSON, pages, a long operation, and Google's errors."""

import contextlib
import json
from urllib.parse import parse_qs, urlsplit

import json_server

PLACE = "projects/my-project/locations/us-central2-b"
_PAGE = 2


class TpuApi:
    """State of the API; tests change it as Google would.

    Attributes:
      refusal: Status code, Google's status and message of the next request's error; None for none.
      requests: Method and path of every request, with its body.
    """

    def __init__(self):
        self.nodes, self.refusal = {}, None
        self.requests = []

    def node(self, name, *addresses, state="READY", **fields):
        endpoints = [{"ipAddress": f"10.1.{each}", "accessConfig": {"externalIp": each}} for each in addresses]
        self.nodes[name] = {"name": f"{PLACE}/nodes/{name}", "state": state, "networkEndpoints": endpoints, **fields}

    def answer(self, method, path, query, body):
        """Return status code and JSON."""
        self.requests.append((method, path, body))
        if self.refusal is not None:
            code, status, message = self.refusal
            return code, {"error": {"code": code, "status": status, "message": message}}
        name = path.removeprefix(f"/v2/{PLACE}/nodes").removeprefix("/")
        if not name:
            return 200, self._page(query)
        if name not in self.nodes:
            message = f"Resource '{PLACE}/nodes/{name}' was not found"
            return 404, {"error": {"code": 404, "status": "NOT_FOUND", "message": message}}
        if method == "PATCH":
            self.nodes[name].update(body)
            node = {"@type": TYPE, **self.nodes[name]}
            return 200, {"name": f"{PLACE}/operations/2", "done": True, "response": node}
        return 200, self.nodes[name]

    def _page(self, query):
        items = [found for _, found in sorted(self.nodes.items())]
        start = int(query.get("pageToken", ["0"])[0] or 0)
        more = {"nextPageToken": str(start + _PAGE)} if start + _PAGE < len(items) else {}
        return {"nodes": items[start : start + _PAGE], **more}


TYPE = "type.googleapis.com/google.cloud.tpu.v2.Node"


@contextlib.contextmanager
def serving(directory, account):
    """Serve a new API; yield it with the environment variables that lead to it.

    Args:
      account: A service account's file as JSON.
    """
    api = TpuApi()

    def answer(request, body):
        url = urlsplit(request.path)
        if not request.headers.get("Authorization", "").startswith("Bearer ey"):
            return 401, {"error": {"code": 401, "status": "UNAUTHENTICATED", "message": "no token"}}
        return api.answer(request.command, url.path, parse_qs(url.query), json.loads(body or b"{}"))

    with json_server.serving(answer) as base:
        path = directory / "account.json"
        path.write_text(json.dumps(account))
        yield (
            api,
            {
                "GOOGLE_APPLICATION_CREDENTIALS": str(path),
                "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": base,
                "CLOUDSDK_CORE_PROJECT": "my-project",
                "CLOUDSDK_COMPUTE_ZONE": "us-central2-b",
            },
        )
