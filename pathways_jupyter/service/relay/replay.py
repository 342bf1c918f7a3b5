"""Memory for what one end of a stream has sent, until the other end acknowledges it.

It is kept in blocks, in the order of the stream. A block is either memory into which is read, or a piece that was read
elsewhere and is kept as it is: nothing is copied to be sent, nor to be sent again.

This text also runs in the relay's container: standard library only, for Python 3.9 and later, and no dollar sign,
because Kubernetes would expand it.
"""

from __future__ import annotations

from collections import deque

from pathways_jupyter.service.relay.wire import BLOCK_BYTES, ProtocolError, Unrecoverable

PIECE_BYTES = 64 * 1024
"""A piece of this size is kept as it is, a smaller one is copied; and a block with less room is not read into."""
_OWN_BYTES = 2 * BLOCK_BYTES
_NOTHING = memoryview(b"")


class Pool:
    """Memory that the streams of one process share.

    Args:
      blocks: How many blocks all of its streams may use, besides the first two of each.
      each: How many blocks one stream may use.

    Attributes:
      left: Bytes that are left for all of its streams; a piece takes no more than its size.
      each: Bytes that one stream may use.
    """

    def __init__(self, blocks: int, each: int) -> None:
        self.left = blocks * BLOCK_BYTES
        self.each = each * BLOCK_BYTES
        # Kept for the next stream, since fresh memory is slow.
        self._free: list[memoryview] = []

    def memory(self) -> memoryview:
        """Return the memory of a block."""
        return self._free.pop() if self._free else memoryview(bytearray(BLOCK_BYTES))

    def recycle(self, memory: memoryview) -> None:
        """Take the memory of a block back."""
        self._free.append(memory)


class _Block:
    """A part of the stream.

    Attributes:
      base: Position of its first byte.
      fill: How many bytes it has.
      pooled: Whether it counts for the pool, and not as one of the stream's own.
      fixed: Whether it is a piece that was read elsewhere, so that nothing is added.
    """

    __slots__ = ("base", "fill", "fixed", "pooled", "view")

    def __init__(self, view: memoryview, base: int, fill: int, pooled: bool, fixed: bool) -> None:
        self.view = view
        self.base = base
        self.fill = fill
        self.pooled = pooled
        self.fixed = fixed


class ReplayBuffer:
    """What one end sends: everything from the first byte that is not acknowledged.

    Attributes:
      acked: Position up to which the other end has received everything.
      sent: Position up to which the current carrier was given everything.
      end: Position of the next byte to be written.
    """

    def __init__(self, pool: Pool) -> None:
        self.acked = self.sent = self.end = 0
        self._pool = pool
        self._limit = max(pool.each, _OWN_BYTES)
        # Memory of its own, so that a stream goes on, if slowly, while the others use up the pool.
        self._own = _OWN_BYTES
        # The memory of all blocks.
        self._used = 0
        self._blocks: deque[_Block] = deque()
        # The block in which `sent` is, or an earlier one.
        self._at = 0

    @property
    def is_full(self) -> bool:
        """Whether nothing can be written."""
        last = self._blocks[-1] if self._blocks else None
        has_room = last is not None and not last.fixed and last.fill < BLOCK_BYTES
        return not has_room and not self._may_grow(BLOCK_BYTES)

    def space(self) -> memoryview:
        """Return where to write the next bytes; empty while the buffer is full. Then call :meth:`filled`."""
        last = self._blocks[-1] if self._blocks else None
        room = 0 if last is None or last.fixed else BLOCK_BYTES - last.fill
        if room < PIECE_BYTES and self._may_grow(BLOCK_BYTES):
            last = self._grow(self._pool.memory(), 0, fixed=False)
        elif not room:
            return _NOTHING
        assert last is not None
        return last.view[last.fill :]

    def filled(self, count: int) -> None:
        """Note that `count` bytes were written into :meth:`space`."""
        self._blocks[-1].fill += count
        self.end += count

    def append(self, piece: memoryview) -> bool:
        """Keep a piece as it is, at most a block; False if there is no room for it. It must not change any more."""
        size = len(piece)
        if not self._may_grow(size):
            return False
        self._grow(piece, size, fixed=True)
        self.end += size
        return True

    def unsent(self) -> memoryview:
        """Return bytes that the carrier has not been given yet, at most the rest of one block."""
        if self.sent == self.end:
            return _NOTHING
        while True:
            block = self._blocks[self._at]
            offset = self.sent - block.base
            if offset < block.fill:
                return block.view[offset : block.fill] if offset or not block.fixed else block.view
            self._at += 1

    def acknowledge(self, position: int) -> None:
        """Release everything before `position`.

        Raises:
          ProtocolError: So much was never sent.
        """
        if position > self.sent:
            raise ProtocolError(f"{position} bytes acknowledged, {self.sent} sent")
        self.acked = max(self.acked, position)
        blocks = self._blocks
        while blocks and blocks[0].base + blocks[0].fill <= self.acked:
            if len(blocks) == 1 and not blocks[0].fixed:
                # Begin again in the last block, so that a stream of small messages stays within it.
                blocks[0].base, blocks[0].fill = self.end, 0
                break
            self._release()

    def rewind(self, position: int) -> None:
        """Send from `position` on again, on another carrier.

        Raises:
          Unrecoverable: Those bytes are no longer here, or were never written.
        """
        if not self.acked <= position <= self.end:
            raise Unrecoverable(f"{position} bytes arrived of {self.acked} to {self.end}")
        self.sent = self.end
        self.acknowledge(position)
        self.sent, self._at = position, 0

    def close(self) -> None:
        """Give all memory back."""
        while self._blocks:
            self._release()
        self.acked = self.sent = self.end

    def _may_grow(self, size: int) -> bool:
        return self._used + size <= self._limit and (self._own >= size or self._pool.left >= size)

    def _grow(self, view: memoryview, fill: int, *, fixed: bool) -> _Block:
        size = len(view)
        pooled = self._own < size
        if pooled:
            self._pool.left -= size
        else:
            self._own -= size
        self._used += size
        block = _Block(view, self.end, fill, pooled, fixed)
        self._blocks.append(block)
        return block

    def _release(self) -> None:
        block = self._blocks.popleft()
        self._at = max(0, self._at - 1)
        size = len(block.view)
        if block.pooled:
            self._pool.left += size
        else:
            self._own += size
        self._used -= size
        if not block.fixed:
            self._pool.recycle(block.view)
