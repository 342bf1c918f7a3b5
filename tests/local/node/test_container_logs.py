from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from pathways_jupyter.local.node.container_logs import ContainerLog

DEADLINE = 30.0


@pytest.fixture
def log(tmp_path: Path):
    log = ContainerLog(tmp_path / "0.log", limit=10_000)
    yield log
    log.remove()
    assert not list(tmp_path.iterdir())


async def text(log: ContainerLog, **options) -> str:
    return b"".join([piece async for piece in log.read(**options)]).decode()


async def test_what_was_printed_is_read_as_it_was(log):
    log.data_received(b"one\ntw")
    log.data_received(b"o\n\rthree")
    assert await text(log) == "one\ntwo\n"
    log.close()
    assert await text(log) == "one\ntwo\n\rthree"


async def test_the_tail_is_counted_in_lines(log):
    log.data_received(b"".join(b"%d\n" % number for number in range(100)))
    assert await text(log, tail=2) == "98\n99\n"
    assert await text(log, tail=0) == ""
    assert len((await text(log, tail=500)).splitlines()) == 100


async def test_every_line_knows_when_it_was_written(log):
    log.data_received(b"early\n")
    middle = time.time() + 0.001
    while time.time() < middle + 0.001:
        pass
    log.data_received(b"late\n")
    assert await text(log, since=middle) == "late\n"
    stamp, line = (await text(log, timestamps=True, tail=1)).split(" ")
    assert stamp.endswith("Z")
    assert line == "late\n"


async def test_a_long_line_without_an_end_stays_one_line(log):
    log.data_received(b"x" * 9_000)
    log.data_received(b"x" * 9_000 + b"\n")
    log.close()
    assert (await text(log))[-9_000:] == "x" * 8_999 + "\n"


async def test_space_is_bounded_and_the_newest_lines_stay(log, tmp_path):
    for number in range(2_000):
        log.data_received(b"line %d\n" % number)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 20_000
    lines = (await text(log)).splitlines()
    assert lines[-1] == "line 1999"
    assert len(lines) > 200


async def test_a_follower_sees_every_line_across_files_until_the_end(log):
    lines: list[str] = []

    async def follow() -> None:
        async for piece in log.read(follow=True):
            lines.extend(piece.decode().splitlines())

    following = asyncio.create_task(follow())
    read, write = os.pipe()
    await log.connect(read)

    def flood() -> None:
        with os.fdopen(write, "wb") as pipe:
            pipe.writelines(b"line %d\n" % number for number in range(300))

    await asyncio.to_thread(flood)
    await asyncio.wait_for(following, DEADLINE)
    assert lines == [f"line {number}" for number in range(300)]
