"""Follow objects of a cluster for as long as a program runs: list, watch, remember, and begin again.

What is known of them is shown, or acted on. So an error ends nothing and is reported, and a server that stops answering
is noticed within seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import Resource
from pathways_jupyter.kube.watch import Change, ChangeType, KnownObjects, Pulse, only_identity, watch

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 15.0
"""Between attempts at a kind that is not installed, not allowed, or at a server that was never reached."""


class Informer:
    """Follows objects with one client, of several kinds at the same time."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._pulse = Pulse(client)
        # Asks while anything is followed: one question for all kinds.
        self._following = 0
        self._asking: asyncio.Task[None] | None = None

    async def follow(
        self,
        resource: Resource,
        listener: Callable[[Change], None],
        *,
        namespace: str = "",
        labels: str = "",
        after: asyncio.Event | None = None,
    ) -> None:
        """Call `listener` with the objects, then with every change, until cancelled.

        An error of the cluster never ends this: it is a ``LOST`` change, also for a kind that does not exist or is
        forbidden, and a ``SYNCED`` one follows when all objects are known again. To save memory, only the identities of
        objects are remembered, and a deleted one may come with no more.

        Args:
          namespace: Empty for all.
          labels: A label selector; empty for all objects.
          after: What the changes wait for; of their list, only the first page is asked for before. None for nothing.

        Raises:
          Exception: The listener's: after a change that it has missed, it would know something false.
        """
        known = KnownObjects(only_identity)
        # The last SYNCED or LOST.
        state: Change | None = None

        def publish(change: Change) -> None:
            nonlocal state
            if change.type in {ChangeType.SYNCED, ChangeType.LOST}:
                if change.error is not None and state is not None and str(state.error) == str(change.error):
                    # Attempt after attempt with the same result.
                    return
                state = change
            listener(change)

        async with self._asking_meanwhile():
            async for _ in (backoff := Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)):
                changes = watch(
                    self.client, resource, namespace=namespace, labels=labels, known=known, pulse=self._pulse
                )
                try:
                    async with contextlib.aclosing(changes):
                        async for change in changes:
                            if after is not None:
                                await after.wait()
                            # A list alone shows no success: watching may be forbidden.
                            if state is not None and state.error is None:
                                backoff.reset()
                            publish(change)
                except PathwaysError as error:
                    # Not installed, not allowed, or never reached: all of these can change while this program runs.
                    publish(Change(ChangeType.LOST, error=error))

    @contextlib.asynccontextmanager
    async def _asking_meanwhile(self) -> AsyncIterator[None]:
        self._following += 1
        self._asking = self._asking or asyncio.create_task(self._pulse.run())
        try:
            yield
        finally:
            self._following -= 1
            if not self._following:
                self._asking.cancel()
                self._asking = None
