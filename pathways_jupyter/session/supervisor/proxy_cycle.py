"""One proxy of a session after the other: a new one for each reconnect, and none while the last one is lost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import PathwaysError, SessionError
from pathways_jupyter.base.events import EventKind, SessionState, SuspendedArrays
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.kube.client import PATIENCE_SECONDS, Client
from pathways_jupyter.kube.cluster_access import Cluster
from pathways_jupyter.service import abandoned
from pathways_jupyter.session import clusters, sweep
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.supervisor.borrowed_proxy import BorrowedProxy
from pathways_jupyter.session.supervisor.early_connections import EarlyConnections
from pathways_jupyter.session.supervisor.own_proxy import OwnProxy
from pathways_jupyter.session.supervisor.pod_watch import RelayRefused
from pathways_jupyter.session.supervisor.proxy import Proxy
from pathways_jupyter.session.supervisor.session_log import SessionLog

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
"""Pause between two looks whether the embedded cluster has ended."""
_OLD_PROXY_GRACE_SECONDS = 1.0
"""Longest wait for the previous proxy's removal once another proxy is requested."""
_SAVED = advice("Its arrays are saved: {resume} brings them back.")


class ProxyCycle:
    """The proxies of one session, of which there is at most one at a time.

    Args:
      session_log: Receives all events.
      listen: Opens the session's socket; called once, before the record is published.
      early: Connections to the cluster from before.
    """

    def __init__(self, session_log: SessionLog, listen: Callable[[], Awaitable[None]], early: EarlyConnections) -> None:
        self._session_log = session_log
        self._listen = listen
        # The settings of the last proxy.
        self._config = session_log.config
        self._early = early
        self._client: Client | None = None
        self._embedded: clusters.Embedded | None = None
        self._proxy: Proxy | None = None
        # Once a relay could not start, the session's next proxies are made without one too.
        self._relay_refused = False
        # The outcome of the current attempt to connect; start and reconnect requests wait for it.
        self._attempt: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        # Set by a reconnect request; cleared when the next attempt begins.
        self._reconnect_requested = asyncio.Event()
        # Suspending, in this order: suspend() sets what is saved; _until_over() returns for that and enters the state;
        # run() removes the proxy, and then sets the answer, for which suspend() has waited.
        self._suspending: asyncio.Future[SuspendedArrays] = asyncio.get_running_loop().create_future()
        self._suspended: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        # Set by a request to cancel a reconnect; cleared when that attempt ends.
        self._cancel_requested = asyncio.Event()

    async def run(self) -> None:
        """Bring up one proxy after the other, a new one for each reconnect, until cancelled or the first one failed."""
        while True:
            try:
                connected, _ = await tasks.first_done(self._make_proxy(), self._cancel_requested.wait())
                # One that came too late must not cancel the next attempt.
                self._cancel_requested.clear()
                if connected is None:
                    raise SessionError("Reconnecting was interrupted.", hint=advice("{reconnect} tries again."))
                proxy: Proxy = connected.result()
            except PathwaysError as error:
                # What was asked for with this attempt only.
                self._session_log.configure(self._config)
                state = SessionState.FAILED
                if self._record.connected_since:
                    state = self._without_proxy
                self._session_log.enter(state, str(error), hint=str(error.hint))
                self.refuse(error)
                if state is SessionState.FAILED:
                    return
            else:
                # It waits as it was connected, and not as long as it was asked to this once.
                self._config = replace(self._session_log.config, wait=self._config.wait)
                self._session_log.configure(self._config)
                # The state before the answer: a client that has its answer must not see an older state.
                self._session_log.connected()
                if not self._attempt.done():
                    self._attempt.set_result(self._record.to_json())
                self._suspending = asyncio.get_running_loop().create_future()
                self._suspended = asyncio.get_running_loop().create_future()
                await self._until_over(proxy)
            # Remove the old proxy before the next one is made: both have the same name in the cluster.
            await self._discard()
            if not self._suspended.done():
                self._suspended.set_result(self._record.to_json())
            # Cleared here only, so that a reconnect during _until_over() or _discard() is remembered. No request is
            # lost between the two lines, because there is no await between them.
            await self._reconnect_requested.wait()
            self._reconnect_requested.clear()
            self._connect_again()

    async def outcome(self) -> Mapping[str, Any]:
        """Wait for the current attempt; return the session's record."""
        # Shielded: a client that goes away must not cancel the future that other clients wait for.
        return await asyncio.shield(self._attempt)

    def reconnect(self, changes: Mapping[str, Any]) -> None:
        """Request another proxy; while an attempt is under way, a second request shares its outcome.

        Args:
          changes: Settings of the session that are others from now on.

        Raises:
          SessionError: The record cannot be written. The next proxy needs it, so the present one stays.
        """
        if self._attempt.done():
            self._session_log.publish()
            self._session_log.change(changes)
            self._attempt = asyncio.get_running_loop().create_future()
            self._reconnect_requested.set()

    async def suspend(self, saved: SuspendedArrays) -> Mapping[str, Any]:
        """Remove the proxy, whose arrays are saved, and keep the session; return its record.

        Raises:
          SessionError: There is no proxy.
        """
        if self._record.state is SessionState.LOST and self._attempt.done():
            # Just now, with nothing left on it that is not saved.
            self._session_log.suspended(saved)
            return self._record.to_json()
        if not self._record.state.is_connected or not self._attempt.done():
            raise SessionError(
                f"Session {self._record.id} has no proxy to suspend: it is {self._record.state}.", hint=_SAVED
            )
        if not self._suspending.done():
            self._suspending.set_result(saved)
        return await asyncio.shield(self._suspended)

    async def cancel(self) -> None:
        """Let a reconnect that is under way fail, and wait until it has; no-op if there is none."""
        # The first attempt is not cancelled but ended, by a request to disconnect.
        if not self._attempt.done() and self._record.connected_since:
            self._cancel_requested.set()
            await asyncio.wait({self._attempt})

    def cut(self) -> int | None:
        """Drop the tunnel's connections to the relay; return how many there were, None without a relay."""
        return None if self._proxy is None else self._proxy.cut()

    def present(self) -> SessionRecord:
        """Return the record as it is now: without the proxy if that is lost, though the reason is still looked for."""
        traffic = self._session_log.traffic
        record = replace(self._record, sent=traffic.sent, received=traffic.received)
        if self._client is not None and self._record.state is not SessionState.INTERRUPTED:
            rate = self._client.upload_rate
            record = replace(
                record,
                round_trip=self._client.round_trip.seconds,
                upload_rate=rate.bytes_per_second,
                upload_measured=rate.measured,
            )
        if record.state.is_connected and self._proxy is not None and self._proxy.is_lost:
            return replace(record, state=self._without_proxy, state_since=time.time(), slices=())
        return record

    def refuse(self, error: PathwaysError) -> None:
        """Fail the pending start or reconnect request, if there is one."""
        if not self._attempt.done():
            self._attempt.set_exception(error)
            # Mark it as retrieved: there may be no waiter, and asyncio would log that on garbage collection.
            self._attempt.exception()

    async def end(self) -> str:
        """Remove the session's objects from the cluster; return what is left and why, or an empty string."""
        try:
            await self._remove()
        except PathwaysError as error:
            left = f"{error} {error.hint}".strip()
            self._session_log.report(EventKind.WARNING, left)
            return left
        finally:
            if self._client is not None:
                self._client.close()
        return ""

    @property
    def _record(self) -> SessionRecord:
        return self._session_log.record

    @property
    def _without_proxy(self) -> SessionState:
        """The state of a session that has lost its proxy: suspended, if its arrays are still saved."""
        return SessionState.SUSPENDED if self._record.saved is not None else SessionState.LOST

    async def _make_proxy(self) -> Proxy:
        """Return a new proxy that JAX can use."""
        async with clusters.explain_local_errors(self._session_log.config):
            return await self._start_in_cluster()

    async def _start_in_cluster(self) -> Proxy:
        # For each attempt, also a failed one: a kernel that has adopted a proxy knows by this number that there is
        # another.
        self._session_log.update(generation=self._record.generation + 1)
        client = await self._open_client()
        try:
            # Where _discard() could not: the new proxy would collide with the old one, whose Job has the same name.
            await self._remove(patience=0)
        except SessionError as error:
            # Report the cause only: the user asked to reconnect, not to remove anything.
            raise error.__cause__ if isinstance(error.__cause__, PathwaysError) else error from None
        relay = self._session_log.config.relay
        if relay is None:
            # There is no network between this process and the embedded cluster.
            relay = self._embedded is None
        if self._relay_refused or not relay:
            return await self._start(client, relay=False)
        try:
            return await self._start(client, relay=True)
        except RelayRefused as error:
            await self._remove()
            proxy = await self._start(client, relay=False)
            # Once, and not for a reason that would also have kept the proxy without a relay from starting.
            self._relay_refused = True
            without = advice(
                "{problem} Continuing without it: an interruption of the network will cost the session and its arrays. "
                "{relay_image} names another image, {no_relay} avoids the attempt.",
                problem=str(error),
            )
            self._session_log.report(EventKind.WARNING, without)
            return proxy

    async def _start(self, client: Client, *, relay: bool) -> Proxy:
        if self._session_log.config.job:
            self._proxy = BorrowedProxy(client, self._session_log)
        else:
            self._proxy = OwnProxy(client, self._session_log, relay=relay)
        await self._proxy.start()
        return self._proxy

    async def _open_client(self) -> Client:
        """Resolve the cluster and open a client; before every proxy, since address or credentials may have changed."""
        config = self._session_log.config
        self._embedded = clusters.Embedded.of(config)
        # The record and not the settings: it names the context that was the current one at the start.
        if self._client is not None:
            cluster = await clusters.resolve(self._record)
            self._client.close()
            self._client = self._client_of(cluster)
            return self._client
        cluster = await clusters.resolve(config)
        # Listen before the record is published: a record whose socket refuses connections counts as a dead session,
        # and would be swept.
        await self._listen()
        namespace = config.namespace or cluster.namespace
        self._session_log.publish(
            namespace=namespace, context=cluster.name, instances=dict(config.instances), pathways_job=config.job
        )
        self._client = self._client_of(cluster)
        return self._client

    def _client_of(self, cluster: Cluster) -> Client:
        if self._embedded is not None and not self._embedded.has_ended():
            # No wrong address: its process runs, and its API server is being restarted.
            return self._early.client(cluster, unknown=PATIENCE_SECONDS)
        return self._early.client(cluster)

    async def _until_over(self, proxy: Proxy) -> None:
        """Wait until the proxy is lost, or a reconnect or suspending is requested."""
        # Sweeping other sessions starts only now, so that it does not delay connecting.
        tidying = asyncio.create_task(self._tidy())
        ends: list[Coroutine[Any, Any, Any]] = [proxy.lost()]
        if self._embedded is not None:
            # The cluster's end may show in nothing else: without a connection in the tunnel, only the pod's watch
            # fails, which tries again for as long as a real cluster may be out of reach.
            ends.append(self._embedded.until_ended(_LOOK_SECONDS))
        try:
            _, _, lost, *ended = await tasks.first_done(
                self._reconnect_requested.wait(), asyncio.wait({self._suspending}), *ends
            )
        finally:
            tidying.cancel()
        if self._suspending.done():
            # Also if it was lost at the same moment.
            self._session_log.suspended(self._suspending.result())
            return
        if self._embedded is not None and (any(ended) or (lost and self._embedded.has_ended())):
            # Not how the end of the whole cluster showed itself first, e.g. as a tunnel that failed.
            reason = "The embedded cluster of this machine has ended."
        elif lost is not None:
            reason = lost.result()
        else:
            # Before the proxy is removed, so that no client takes it for usable meanwhile.
            self._connect_again()
            return
        # This event carries the state as well: a cell that starts between this event and the next one must already see
        # that the proxy is lost.
        state = self._without_proxy
        self._session_log.report(EventKind.PROXY_LOST, reason, pod=self._record.pod, state=state)
        arrays = "still saved" if state is SessionState.SUSPENDED else "lost"
        self._session_log.enter(state, f"{reason} Its arrays are {arrays}.")

    def _connect_again(self) -> None:
        self._session_log.enter(SessionState.STARTING, "Connecting again.")

    async def _tidy(self) -> None:
        assert self._client is not None
        try:
            for session in await sweep.sweep_dead():
                logger.info("swept session %s, whose supervisor had died", session)
            for each in await abandoned.sweep(self._client, self._record.namespace):
                logger.info("%s", each)
        except PathwaysError as error:
            logger.info("could not sweep: %s", error)

    async def _discard(self) -> None:
        """Remove the lost or replaced proxy, if there is one.

        Stops waiting for the removal shortly after a reconnect was requested, because the API server may be unreachable
        for minutes; :meth:`_make_proxy` then tries again, and reports the failure to the user who is waiting.
        """

        async def grace_over() -> None:
            await self._reconnect_requested.wait()
            await asyncio.sleep(_OLD_PROXY_GRACE_SECONDS)

        try:
            # A removal that is cancelled deletes nothing of the next proxy, which has the same labels.
            removed, _ = await tasks.first_done(self._remove(), grace_over())
            if removed is not None:
                removed.result()
        except PathwaysError as error:
            self._session_log.report(EventKind.WARNING, f"{error} {error.hint}".strip())

    async def _remove(self, *, patience: float = sweep.PATIENCE_SECONDS) -> None:
        """Close the proxy, if there is one, and delete what it has in the cluster; that of a job has nothing there.

        Args:
          patience: Seconds to retry while the API server is unreachable.

        Raises:
          SessionError: Something could not be removed, and the proxy is still to be removed.
        """
        proxy, record = self._proxy, self._record
        if proxy is None:
            return
        try:
            await proxy.close()
        except Exception:
            # The local end is closed with this process anyway; the objects in the cluster must still be removed.
            logger.exception("the tunnel and its watches could not be closed")
        if record.job:
            assert self._client is not None
            await sweep.remove(
                self._client,
                record.namespace,
                record.id,
                job=proxy.job,
                patience=patience,
                waiting=self._session_log.cleanup_waits,
                embedded=self._embedded,
            )
        # Only now: what could not be removed stays, to be tried again before the next proxy or at the end.
        self._proxy = None
