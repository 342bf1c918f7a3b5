"""An HTTP server whose every answer is written by a test, for those that a real API server gives in trouble."""

import asyncio
import json

from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.cluster_access import Cluster
from pathways_jupyter.kube.credentials import Fixed


class Scripted:
    """A server that answers each request with the next of `answers` (raw bytes); None drops the connection."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests, self.targets = [], []

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
        credentials = Fixed(hint="none")
        self.client = Client(Cluster("scripted", url, "default", credentials))
        return self

    async def __aexit__(self, *_):
        self.client.close()
        self.server.close()

    async def _serve(self, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = [line for line in head.split("\r\n") if line.lower().startswith("content-length")]
                if length:
                    await reader.readexactly(int(length[0].partition(":")[2]))
                method, target, _ = head.split(" ", 2)
                self.requests.append(method)
                self.targets.append(target)
                answer = self.answers.pop(0)
                if answer is not None:
                    writer.write(answer)
                    await writer.drain()
                if answer is None or b"\r\nContent-Length" not in answer:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def ok(body):
    text = json.dumps(body).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)


def busy(status=429, after=None):
    """An overloaded server's answer, with the seconds after which it wants to be asked again."""
    retry = b"" if after is None else b"Retry-After: %d\r\n" % after
    return b"HTTP/1.1 %d Busy\r\n%bContent-Length: 2\r\n\r\n{}" % (status, retry)
