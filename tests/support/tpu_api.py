"""A Cloud TPU API on loopback: nodes and queued resources in JSON, pages, long operations, and Google's errors."""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PLACE = "projects/my-project/locations/us-central2-b"
_PAGE = 2
_STEPS = ("ACCEPTED", "PROVISIONING", "ACTIVE", "ACTIVE")


class TpuApi:
    """State of the API; tests change it as Google would.

    Attributes:
      refusal: Status code, Google's status and message of the next request's error; None for none.
      stockout: Queued resources fail for lack of capacity.
      requests: Method and path of every request, with its body.
    """

    def __init__(self):
        self.nodes, self.queued = {}, {}
        self.refusal, self.stockout = None, False
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
        kind, _, name = path.removeprefix(f"/v2/{PLACE}/").partition("/")
        known = self.nodes if kind == "nodes" else self.queued
        if method == "POST":
            name = query["queuedResourceId"][0]
            known[name] = {**body, "name": f"{PLACE}/queuedResources/{name}", "reads": 0}
            return 200, {"name": f"{PLACE}/operations/1", "done": False}
        if not name:
            return 200, self._page(kind, known, query)
        if name not in known:
            message = f"Resource '{PLACE}/{kind}/{name}' was not found"
            return 404, {"error": {"code": 404, "status": "NOT_FOUND", "message": message}}
        if method == "PATCH":
            known[name].update(body)
            return 200, {"name": f"{PLACE}/operations/2", "done": True, "response": {"@type": TYPE, **known[name]}}
        if method == "DELETE":
            if self.queued[name]["reads"] and "force" not in query:
                message = "cannot delete a queued resource with nodes"
                return 400, {"error": {"code": 400, "status": "FAILED_PRECONDITION", "message": message}}
            del known[name]
            return 200, {"name": f"{PLACE}/operations/3", "done": True, "response": {"@type": EMPTY}}
        return 200, self._advanced(name) if kind == "queuedResources" else known[name]

    def _page(self, kind, known, query):
        items = [self._state(name) if kind == "queuedResources" else found for name, found in sorted(known.items())]
        start = int(query.get("pageToken", ["0"])[0] or 0)
        more = {"nextPageToken": str(start + _PAGE)} if start + _PAGE < len(items) else {}
        return {kind: items[start : start + _PAGE], **more}

    def _advanced(self, name):
        """Each read finds it one step further."""
        self.queued[name]["reads"] += 1
        spec = self.queued[name]["tpu"]["nodeSpec"][0]
        several = spec.get("multisliceParams")
        names = (
            [f"{several['nodeIdPrefix']}-{number}" for number in range(several["nodeCount"])]
            if several
            else [spec["nodeId"]]
        )
        step = self.queued[name]["reads"]
        for each in names if step >= 2 and not self.stockout else ():
            self.node(each, state="READY" if step >= 4 else "CREATING")
        return self._state(name)

    def _state(self, name):
        found = dict(self.queued[name])
        step = _STEPS[min(max(found.pop("reads") - 1, 0), len(_STEPS) - 1)]
        if self.stockout and step != "ACCEPTED":
            problem = {"code": 8, "message": "There is no more capacity in the zone"}
            return {**found, "state": {"state": "FAILED", "failedData": {"error": problem}}}
        return {**found, "state": {"state": step}}


EMPTY = "type.googleapis.com/google.protobuf.Empty"
TYPE = "type.googleapis.com/google.cloud.tpu.v2.Node"


@contextlib.contextmanager
def serving(directory, account):
    """Serve a new API; yield it with the environment variables that lead to it.

    Args:
      account: A service account's file as JSON.
    """
    api = TpuApi()

    class Routes(BaseHTTPRequestHandler):
        def _answer(self):
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size) or b"{}")
            url = urlsplit(self.path)
            if not self.headers.get("Authorization", "").startswith("Bearer ey"):
                code, found = 401, {"error": {"code": 401, "status": "UNAUTHENTICATED", "message": "no token"}}
            else:
                code, found = api.answer(self.command, url.path, parse_qs(url.query), body)
            content = json.dumps(found).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = do_DELETE = _answer

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Routes) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_address[1]}"
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
        server.shutdown()
