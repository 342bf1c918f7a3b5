"""The operator's program: sweeps, and controls PathwaysJobs while it is the leader and no other controller runs."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from pathways_jupyter.base import process_setup, tasks
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.sentences import Face
from pathways_jupyter.base.text import seconds_in, stamp
from pathways_jupyter.kube import auth, claim_package
from pathways_jupyter.kube.client import Client, preload
from pathways_jupyter.kube.informer import Informer
from pathways_jupyter.operator.election import (
    LEASE_SECONDS,
    LONGEST_LEASE_SECONDS,
    Election,
    Rivals,
    identity,
)
from pathways_jupyter.operator.job_controller import PathwaysJobController, Reconciles
from pathways_jupyter.operator.sweeper import INTERVAL_SECONDS, Sweeper
from pathways_jupyter.service import abandoned


def program(argv: list[str] | None = None) -> int:
    """Be the operator's process, which does nothing else."""
    claim_package()
    with process_setup.without_certificates():
        preload()
    return main(argv)


def main(argv: list[str] | None = None) -> int:
    """Run the operator until SIGTERM or SIGINT; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="pathways-jupyter operator run",
        description="Control PathwaysJobs, and delete the proxies of dead sessions, until stopped. "
        "Exit code 0 after SIGTERM or SIGINT, 1 when the cluster cannot be used or --once could not delete something.",
        epilog="Examples: `pathways-jupyter operator run` in a pod with the service account of "
        "`pathways-jupyter operator manifests`; `pathways-jupyter operator run --once` sweeps once.",
    )
    parser.add_argument("--namespace", default="", help="only this namespace (default: all)")
    parser.add_argument(
        "--interval",
        type=_seconds(1, 86400),
        default=INTERVAL_SECONDS,
        metavar="SECONDS",
        help="seconds until it sweeps though no lease has run out (default: %(default)g)",
    )
    parser.add_argument("--once", action="store_true", help="sweep once, and end")
    parser.add_argument(
        "--lease-seconds",
        type=_seconds(1, LONGEST_LEASE_SECONDS),
        default=LEASE_SECONDS,
        metavar="SECONDS",
        help="how long a leader may be silent before another operator takes over (default: %(default)g)",
    )
    parser.add_argument(
        "--metrics-port",
        type=_port,
        default=0,
        metavar="PORT",
        help="serve Prometheus metrics, /healthz and /readyz on this port",
    )
    parser.add_argument(
        "--own-namespace",
        default="",
        metavar="NAMESPACE",
        help="of its Lease (default: that of --namespace, else the pod's or the context's)",
    )
    parser.add_argument("--kubeconfig", default="", help="instead of the pod's service account")
    parser.add_argument("--context", default="", help="instead of the kubeconfig's current context")
    options = parser.parse_args(argv)
    try:
        return asyncio.run(_main(options))
    except PathwaysError as error:
        print(f"{error} {error.advice(Face.TERMINAL)}".strip(), file=sys.stderr)
        return 1


def _seconds(least: float, most: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        number = seconds_in(text)
        # NaN is in no interval.
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"must be a time from {least:g} to {most:g} seconds, not {text}")
        return number

    return parse


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 <= int(text[:6]) <= 65535:
        raise argparse.ArgumentTypeError(f"must be a port from 1 to 65535, or 0 for none, not {text}")
    return int(text)


def report(text: str) -> None:
    """Write one line of the operator's log."""
    print(stamp(time.time()), text, flush=True)


class Operator:
    """The operator of one cluster.

    Attributes:
      election: By which it becomes the leader, who alone controls jobs.
      reconciles: Of jobs, by this process.
    """

    def __init__(self, informer: Informer, options: argparse.Namespace) -> None:
        client = informer.client
        self._informer = informer
        self._namespace: str = options.namespace
        namespace = options.own_namespace or options.namespace or client.namespace or "default"
        self._sweeper = Sweeper(informer, namespace=options.namespace, interval=options.interval, say=report)
        self.reconciles = Reconciles()
        self.election = Election(
            client,
            namespace,
            me=identity(),
            say=lambda text: report(f"PathwaysJobs: {text}"),
            seconds=options.lease_seconds,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Sweep and control jobs until `stop` is set."""
        controlling = asyncio.create_task(self.election.run(self._control))
        sweeping = asyncio.create_task(self._sweeper.run(stop))
        try:
            done, _ = await asyncio.wait({controlling, sweeping}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        finally:
            stop.set()
            controlling.cancel()
            await asyncio.gather(controlling, sweeping, return_exceptions=True)

    async def _control(self) -> None:
        """Control jobs as the leader, except while another controller of the same API runs."""
        rivals = Rivals(self._informer, say=lambda text: report(f"PathwaysJobs: {text}"))
        async with tasks.group() as group:
            group.create_task(rivals.follow())
            await rivals.synced.wait()
            while True:
                # Before it is asked who is there, so that no change in between is missed.
                rivals.changed.clear()
                work: list[Coroutine[Any, Any, object]] = [rivals.changed.wait()]
                if rivals.present:
                    report(f"PathwaysJobs: {rivals.present} controls them already; standing back while it runs")
                else:
                    report("PathwaysJobs: controlling them")
                    jobs = PathwaysJobController(
                        self._informer, namespace=self._namespace, say=report, reconciles=self.reconciles
                    )
                    work.append(jobs.run())
                for done in await tasks.first_done(*work):
                    if done is not None:
                        await done


async def _main(options: argparse.Namespace) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Only the main thread can have signal handlers; in another thread the caller stops it.
        with contextlib.suppress(RuntimeError, ValueError):
            loop.add_signal_handler(number, stop.set)
    async with Client(auth.load(options.kubeconfig, options.context)) as client:
        where = f"namespace {options.namespace}" if options.namespace else "all namespaces"
        report(f"sweeping {where} of {client.cluster.name}")
        if options.once:
            swept = await abandoned.sweep(client, options.namespace)
            for each in swept:
                report(str(each))
            return int(any(each.error for each in swept))
        informer = Informer(client)
        operator = Operator(informer, options)
        async with contextlib.AsyncExitStack() as stack:
            if options.metrics_port:
                from pathways_jupyter.operator import metrics_server

                serving = metrics_server.serving(
                    informer,
                    options.metrics_port,
                    namespace=options.namespace,
                    is_ready=lambda: operator.election.server_answers,
                    reconciles=operator.reconciles,
                    say=report,
                )
                report(f"metrics: {await stack.enter_async_context(serving)}")
            await operator.run(stop)
    report("stopped")
    return 0


if __name__ == "__main__":
    process_setup.open_closed_streams()
    sys.exit(program())
