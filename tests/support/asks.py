"""Questions to an API server from code that is not asynchronous."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pathways_jupyter.kube import auth
from pathways_jupyter.kube.client import Client


def ask(kubeconfig: object, question: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> Any:
    """Return what `question` does, which gets a client, and the other arguments."""

    async def answer() -> Any:
        async with Client(auth.load(str(kubeconfig))) as client:
            return await question(client, *arguments, **options)

    return asyncio.run(answer())
