import asyncio
import fcntl
import socket
import struct
import termios

from pathways_jupyter.tunnel.local_connection import READ_BYTES, Inbox, LocalConnection

DEADLINE = 60.0


class Pair:
    """A local program's end of a unix socket, as streams, and our end of it."""

    async def open(self, path):
        accepted = asyncio.get_running_loop().create_future()
        self.server = await asyncio.get_running_loop().create_unix_server(
            lambda: LocalConnection(accepted.set_result), str(path)
        )
        self.reader, self.writer = await asyncio.open_unix_connection(path)
        self.ours = await accepted
        return self

    def close(self):
        self.writer.close()
        self.ours.abort()
        self.server.close()


async def test_what_was_sent_before_the_end_is_read_before_it(tmp_path):
    pair = await Pair().open(tmp_path / "socket")
    for piece in (b"a" * 10, b"b" * 100_000, b"c"):
        pair.writer.write(piece)
    pair.writer.write_eof()
    got = bytearray()
    async with asyncio.timeout(DEADLINE):
        while data := await pair.ours.read():
            got += data
        # It can still be answered.
        await pair.ours.write(memoryview(b"answer"))
        assert await pair.reader.readexactly(6) == b"answer"
    assert got == b"a" * 10 + b"b" * 100_000 + b"c"
    pair.close()


async def test_a_writer_that_is_cancelled_while_it_waits_for_room_does_not_stop_the_next_one(tmp_path):
    """As when a relay's carrier breaks while the local program reads slowly: the next carrier writes on."""
    pair = await Pair().open(tmp_path / "socket")
    chunk = memoryview(bytes(262_144))
    written = 0
    while True:
        writing = asyncio.create_task(pair.ours.write(chunk))
        written += len(chunk)
        await asyncio.sleep(0)
        if not writing.done():
            break
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    async with asyncio.timeout(DEADLINE):
        following = asyncio.create_task(pair.ours.write(memoryview(b"end")))
        assert await pair.reader.readexactly(written) == bytes(written)
        assert await pair.reader.readexactly(3) == b"end"
        await following
    pair.close()


async def test_a_message_is_written_whole_for_a_program_that_does_not_read_yet(tmp_path):
    """If it were written in two parts, a busy machine would change between the programs once more."""
    pair = await Pair().open(tmp_path / "socket")
    message = bytes(262_144)
    # Without a turn of the loop, in which the program's streams would read.
    await pair.ours.write(memoryview(message))
    program = pair.writer.get_extra_info("socket")
    assert program.family == socket.AF_UNIX
    (arrived,) = struct.unpack("i", fcntl.ioctl(program.fileno(), termios.FIONREAD, bytes(4)))
    assert arrived == len(message)
    pair.close()


async def test_a_program_that_sends_faster_than_it_is_read_has_to_wait(tmp_path):
    pair = await Pair().open(tmp_path / "socket")
    flood = bytes(16 * READ_BYTES)
    pair.writer.write(flood)
    sending = asyncio.create_task(pair.writer.drain())
    async with asyncio.timeout(DEADLINE):
        # With each turn of the loop, as much would arrive as fits into the socket.
        for _ in range(200):
            await asyncio.sleep(0)
        assert READ_BYTES <= pair.ours._size < 4 * READ_BYTES
        assert not sending.done()
        got = 0
        while got < len(flood):
            got += len(await pair.ours.read())
        await sending
    pair.close()


async def test_what_arrives_before_there_is_a_local_program_is_kept_and_more_makes_the_sender_wait():
    inbox, taken = Inbox(), []

    async def write(piece):
        taken.append(bytes(piece))

    piece = memoryview(bytes(200 * 1024))
    async with asyncio.timeout(DEADLINE):
        await inbox.put(piece)
        waiting = [asyncio.create_task(inbox.put(piece)) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(each.done() for each in waiting)
        # Otherwise a carrier on which nothing is read any more would be taken for a dead one.
        assert inbox.is_waiting
        # As when a carrier is closed: what it has delivered counts as received, and others still wait.
        waiting[0].cancel()
        await asyncio.gather(waiting[0], return_exceptions=True)
        await inbox.open(write)
        await waiting[1]
        await inbox.put(memoryview(b"next"))
        assert not inbox.is_waiting
    assert [len(each) for each in taken] == [len(piece)] * 3 + [4]


async def test_what_no_one_will_read_makes_no_sender_wait():
    inbox = Inbox()
    inbox.discard()
    async with asyncio.timeout(DEADLINE):
        for _ in range(4):
            await inbox.put(memoryview(bytes(200 * 1024)))
