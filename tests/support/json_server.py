"""A server on loopback that answers in JSON, as Google's APIs do."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Request = BaseHTTPRequestHandler
"""With `command` (GET), `path`, which has the query too, and `headers`."""


@contextlib.contextmanager
def serving(answer: Callable[[Request, bytes], tuple[int, object]]) -> Iterator[str]:
    """Serve what `answer` returns for a request and its body: a status code, and the value; yields the address."""

    class Routes(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            code, value = answer(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            content = json.dumps(value).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Routes) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
