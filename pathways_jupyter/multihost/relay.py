"""Who sends the files to whom: this machine to a few hosts, and each host that has them to others.

No host can log in to another one for this, and no key of the user leaves this machine: the client makes a certificate
for one run, and gives it to each host over its own connection, whose host key it has verified. With it the hosts know
each other, and their connections are encrypted.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pathways_jupyter.multihost.errors import FetchFailed, HostError
from pathways_jupyter.multihost.hostsession import HostSession, Sent
from pathways_jupyter.multihost.pack import Packed
from pathways_jupyter.multihost.run_events import Event, Note
from pathways_jupyter.multihost.spool import Spool
from pathways_jupyter.wording import count

WORTH_BYTES = 256 * 1024
"""Less than this is sent from here: it takes no longer than asking two hosts."""
_FROM_HERE = 2
"""How many hosts are sent to from here at first."""
_FROM_A_HOST = 2
"""How many hosts one host sends to at a time."""
_CLOCKS = datetime.timedelta(days=1)
"""How much the clocks of hosts may differ from the one here."""


@dataclass(eq=False)
class _Source:
    """A host that has the files.

    Attributes:
      where: Its address and port, once it listens.
      busy: How many hosts fetch from it now.
    """

    session: HostSession
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    where: tuple[str, int] | None = None
    busy: int = 0


class Relay:
    """Distributes the files of one run.

    Args:
      publish: Receives what the user should know.
    """

    def __init__(self, publish: Callable[[Event], Awaitable[None]]) -> None:
        self._publish = publish
        self._secret = one_time_certificate()
        self._sources: list[_Source] = []
        self._sending = 0
        self._passed = self._failed = 0
        self._changed = asyncio.Event()

    async def sync(self, session: HostSession, packed: Packed, spool: Spool, directory: str, sent: Sent) -> None:
        """Make `directory` on a host hold what `packed` does, by way of another host if possible.

        Raises:
          PackError: A file has changed since it was packed.
          HostError: The host cannot write the files.
          HostUnreachable: The connection from here was lost.
        """
        missing = await session.lacking(packed, directory)
        is_small = spool.size(missing) < WORTH_BYTES
        source = None if is_small else await self._choose()
        try:
            if source is not None:
                if await self._fetch(session, source, spool.size(missing), sent):
                    missing = ()
                else:
                    # Some of it has arrived.
                    missing = await session.lacking(packed, directory)
            await session.send(spool, missing, sent)
            await session.unpack(directory)
            # A connection that was made again replaces the one before.
            self._sources = [each for each in self._sources if each.session.target != session.target]
            self._sources.append(_Source(session))
        finally:
            if source is not None:
                source.busy -= 1
            elif not is_small:
                self._sending -= 1
            self._notify()

    async def close(self) -> None:
        """Stop what listens on the hosts, once all of them have the files or have failed."""
        if self._passed:
            await self._publish(Note(f"{count(self._passed, 'host')} received the files from other hosts."))
        for source in self._sources:
            if source.where is not None:
                try:
                    await source.session.unshare()
                except HostError:
                    # With its connection, what listens there ends too.
                    continue

    async def _choose(self) -> _Source | None:
        """Wait until a host can send; None when the next host is to be served from here."""
        while True:
            free = [each for each in self._sources if each.busy < _FROM_A_HOST]
            if free and not self._hopeless:
                source = min(free, key=lambda each: each.busy)
                source.busy += 1
                return source
            if self._hopeless or self._sending + len(self._sources) < _FROM_HERE:
                self._sending += 1
                return None
            await self._changed.wait()

    async def _fetch(self, session: HostSession, source: _Source, total: int, sent: Sent) -> bool:
        """Let a host fetch from `source`; return whether it has everything now."""
        try:
            async with source.asking:
                if source.where is None:
                    source.where = await source.session.share(self._secret)
        except HostError as error:
            await self._drop(source, f"{source.session.target.name} cannot pass the files on", str(error))
            return False
        try:
            await session.fetch(*source.where, self._secret, lambda done: sent(min(done, total), total))
        except FetchFailed as error:
            names = f"{session.target.name} could not fetch the files from {source.session.target.name}"
            await self._drop(source, names, str(error))
            return False
        sent(total, total)
        self._passed += 1
        return True

    async def _drop(self, source: _Source, what: str, why: str) -> None:
        was_hopeless = self._hopeless
        if source in self._sources:
            # Once, however many were fetching from it.
            self._failed += 1
            self._sources.remove(source)
        self._notify()
        await self._publish(Note(f"{what}: {why.rstrip('.')}. They are sent from here."))
        if self._hopeless and not was_hopeless:
            await self._publish(Note("The hosts do not reach each other, so that all is sent from here."))

    @property
    def _hopeless(self) -> bool:
        """Whether hosts do not reach each other at all, for instance because of a firewall."""
        return self._failed >= 2 and not self._passed

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def one_time_certificate() -> bytes:
    """Return a new self-signed certificate and its key as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pathways-multihost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS)
        .not_valid_after(now + _CLOCKS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)
