"""Clean up after dead supervisors, based on their records.

Run as a program it takes session ids: a kernel whose supervisor died starts it instead of cleaning up by itself.
``pathways-jupyter clean``, the server extension and the next supervisor call :func:`sweep_dead` for all records whose
supervisor is gone.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Sequence

from pathways_jupyter.errors import PathwaysError, SessionError
from pathways_jupyter.kube.client import Client
from pathways_jupyter.session import cleanup, protocol, reach, registry, strays
from pathways_jupyter.session.registry import SessionRecord

logger = logging.getLogger(__name__)


def dead() -> list[SessionRecord]:
    """Return the sessions whose supervisor ended without cleaning up.

    The supervisor of another machine that shares the home directory cannot be queried from here; its session counts as
    dead once the cluster must have ended its proxy.
    """
    return [record for record in registry.sessions() if not may_live(record)]


def may_live(record: SessionRecord) -> bool:
    """Whether the supervisor of `record` may be running, as far as this machine can know."""
    if record.is_here:
        return registry.is_alive(record)
    allowed = protocol.config_from_json(record.config).max_lifetime
    return time.time() < max(record.created, record.state_since) + allowed


async def sweep(record: SessionRecord, *, patience: float = cleanup.PATIENCE_SECONDS) -> None:
    """Remove what the dead session of `record` left, first in the cluster, then on this machine.

    Args:
      patience: Seconds to retry while the API server is unreachable.

    Raises:
      PathwaysError: Something in the cluster could not be removed; the record stays for the next sweep.
    """
    embedded = reach.Embedded.of(protocol.config_from_json(record.config))
    # A session that was attached to a job has made nothing in the cluster, and its user may not even list Jobs there.
    made = record.namespace and not record.pathways_job
    if made and not (embedded is not None and embedded.has_ended()):
        async with Client(await reach.again(record)) as client:
            await cleanup.remove(client, record.namespace, record.id, patience=patience)
    registry.remove(record)


async def sweep_dead() -> list[str]:
    """Sweep every dead session of this machine whose cluster can be reached.

    A failure is logged, and does not stop the sweep of the others.

    Returns:
      The ids of the sessions that were removed completely.
    """
    swept = []
    for record in dead():
        try:
            await sweep(record, patience=0)
        except PathwaysError as error:
            logger.warning("session %s: %s", record.id, error)
        except Exception:
            logger.exception("session %s cannot be swept", record.id)
        else:
            swept.append(record.id)
    for left in strays.find():
        try:
            strays.remove(left)
        except SessionError as error:
            logger.warning("session %s: %s", left.session, error)
        else:
            swept.append(left.session)
    return swept


async def _sweep_all(sessions: Sequence[str]) -> int:
    status = 0
    for session in sessions:
        record = registry.read(session)
        if record is None:
            continue
        try:
            await sweep(record)
            logger.info("session %s: cleaned up after its supervisor", session)
        except PathwaysError as error:
            logger.error("session %s: %s %s", session, error, error.hint)
            status = 1
    return status


def main(arguments: Sequence[str]) -> int:
    """Sweep the sessions named in `arguments`; return 0 if nothing of them is left."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s sweep: %(message)s")
    return asyncio.run(_sweep_all(arguments))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
