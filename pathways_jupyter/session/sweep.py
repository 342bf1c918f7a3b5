"""Clean up after supervisors that died, from the records that they left.

Run as a program it takes session ids: that is how a kernel that sees its supervisor die gets the cluster cleaned
without doing so itself. ``pathways-jupyter clean``, the server extension and the next supervisor call
:func:`sweep` for all records whose supervisor is gone.
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
    """Sessions whose supervisor is gone without having cleaned up.

    That of another machine, whose home directory is this one's too, counts as gone when its proxy has outlived what the
    cluster allows: its supervisor cannot be asked from here.
    """
    return [record for record in registry.sessions() if not may_live(record)]


def may_live(record: SessionRecord) -> bool:
    """Whether the supervisor of `record` is there, as far as this machine can know."""
    if record.is_here:
        return registry.is_alive(record)
    allowed = protocol.config_from_json(record.config).max_lifetime
    return time.time() < max(record.created, record.state_since) + allowed


async def sweep(record: SessionRecord, *, patience: float = cleanup.PATIENCE_SECONDS) -> None:
    """Removes what the dead session of `record` left, in the cluster first and on this machine then.

    Args:
      patience: Seconds to go on trying while the API server is away.

    Raises:
      PathwaysError: Something in the cluster could not be removed; the record stays, for the next one who tries.
    """
    embedded = reach.Embedded.of(protocol.config_from_json(record.config))
    if record.namespace and not (embedded is not None and embedded.has_ended()):
        async with Client(await reach.again(record)) as client:
            await cleanup.remove(client, record.namespace, record.id, patience=patience)
    registry.remove(record)


async def sweep_dead() -> list[str]:
    """Sweep every dead session of this machine, as far as its cluster can be reached.

    Each is judged alone: one whose record or cluster makes trouble is logged, and does not keep the others.

    Returns:
      The ids of those of which nothing is left.
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
    """Sweeps the sessions named in `arguments`; 0 when nothing of them is left."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s sweep: %(message)s")
    return asyncio.run(_sweep_all(arguments))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
