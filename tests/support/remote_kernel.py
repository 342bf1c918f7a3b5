"""A kernel of a Jupyter server somewhere, used over HTTP as a page uses it."""

import contextlib
import json
import uuid


class RemoteKernel:
    """Runs cells through the kernel's WebSocket."""

    def __init__(self, channels):
        self._channels = channels

    async def run(self, code):
        """Run a cell, and return what it prints, shows or raises."""
        request = uuid.uuid4().hex
        content = {"code": code, "silent": False, "allow_stdin": False, "stop_on_error": True}
        header = {"msg_id": request, "msg_type": "execute_request", "session": uuid.uuid4().hex}
        header |= {"username": "", "version": "5.3"}
        shell = {"channel": "shell", "parent_header": {}, "metadata": {}, "buffers": []}
        await self._channels.send_json({"header": header, "content": content, **shell})
        said = ""
        async for message in self._channels:
            received = json.loads(message.data)
            if received.get("parent_header", {}).get("msg_id") != request:
                continue
            shown = received["content"]
            said += shown.get("text", "") + (shown.get("data") or {}).get("text/plain", "")
            said += "\n".join(shown.get("traceback", ()))
            if shown.get("execution_state") == "idle":
                return said
        raise AssertionError("the connection was closed")


@contextlib.asynccontextmanager
async def started(http, base, **options):
    """A new kernel of the server below `base`; it goes on when its page is closed."""
    async with http.post(f"{base}/api/kernels", json={"name": "python3"}, **options) as answer:
        assert answer.status == 201, await answer.text()
        kernel = (await answer.json())["id"]
    async with http.ws_connect(f"{base}/api/kernels/{kernel}/channels", max_msg_size=0) as channels:
        yield RemoteKernel(channels)
