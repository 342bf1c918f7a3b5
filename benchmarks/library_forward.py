"""A port-forward on the `kubernetes` package's own streams, to compare with ours.

``python -m benchmarks.library_forward KUBECONFIG CONTEXT NAMESPACE POD PORT SOCKET`` listens on a unix socket until
standard input closes; the socket's path is its first line of output.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

READ_BYTES = 256 * 1024
PING_SECONDS = 20.0


async def serve(kubeconfig: str, context: str, namespace: str, pod: str, port: int, path: str) -> None:
    """Forward connections to `path` until standard input closes."""
    from kubernetes.aio.client import Configuration, CoreV1Api
    from kubernetes.aio.config import load_kube_config
    from kubernetes.aio.stream import WsApiClient

    configuration = Configuration()
    await load_kube_config(kubeconfig, context, configuration, persist_config=False)
    configuration.client_session_kwargs = {"read_bufsize": READ_BYTES}
    async with WsApiClient(configuration, heartbeat=PING_SECONDS) as client:

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                opening = await CoreV1Api(client).connect_get_namespaced_pod_portforward_without_preload_content(
                    pod, namespace, ports=str(port)
                )
                async with opening as socket:
                    upward = asyncio.create_task(_up(reader, socket))
                    try:
                        await _down(socket, writer)
                    finally:
                        upward.cancel()
            finally:
                writer.close()

        server = await asyncio.start_unix_server(accepted, path, limit=READ_BYTES)
        print(path, flush=True)
        await asyncio.to_thread(sys.stdin.read)
        server.close()


async def _up(reader: asyncio.StreamReader, socket: Any) -> None:
    while data := await reader.read(READ_BYTES):
        await socket.send_bytes(b"\0" + data)
    await socket.close()


async def _down(socket: Any, writer: asyncio.StreamWriter) -> None:
    # The first two bytes of each channel are the port's number.
    skip = 2
    async for message in socket:
        data = message.data
        if not data or data[0] != 0:
            continue
        data = memoryview(data)[1:]
        if skip:
            used = min(skip, len(data))
            skip, data = skip - used, data[used:]
        writer.write(data)
        await writer.drain()


if __name__ == "__main__":
    import uvloop

    kubeconfig, context, namespace, pod, port, path = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(kubeconfig, context, namespace, pod, int(port), path))
