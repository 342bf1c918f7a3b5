"""Feeds whose listeners fail like the remote end of a connection, and must not affect the publisher."""

import asyncio

from pathways_jupyter.service.feed import Feed, PolledFeed

DEADLINE = 60.0


class Quiet(Feed):
    """Publishes only what a test does."""

    state = ()

    async def _watch(self):
        await asyncio.Event().wait()

    def _snapshot(self):
        return self.state


async def test_a_listener_that_raises_is_removed_and_the_others_get_every_message():
    feed, got, tried = Quiet(), [], []

    def broken(message):
        tried.append(message)
        raise ConnectionError("closing")

    feed.add(broken)
    feed.add(got.append)
    feed.publish({"n": 1})
    feed.publish({"n": 2})
    assert tried == [{"n": 1}]
    assert got == [{"n": 1}, {"n": 2}]
    feed.stop()


async def test_a_listener_that_another_one_removes_gets_nothing_more():
    feed, got = Quiet(), []

    def one(message):
        got.append("one")
        feed.remove(other)

    def other(message):
        got.append("other")
        feed.remove(one)

    feed.add(one)
    feed.add(other)
    feed.publish({})
    feed.publish({})
    # Only the first of them is called, and their order is not defined.
    assert got in (["one", "one"], ["other", "other"])
    feed.stop()


async def test_a_listener_that_fails_while_it_is_brought_up_to_date_gets_nothing_more():
    feed, got = Quiet(), []
    feed.state = ({"n": 1}, {"n": 2})

    def broken(message):
        got.append(message)
        raise ConnectionError("closing")

    feed.add(broken)
    assert got == [{"n": 1}]
    assert not feed.has_listeners
    feed.stop()


async def test_a_feed_runs_while_it_has_listeners_and_can_be_started_again():
    feed = Quiet()
    for _ in range(2):
        feed.add(print)
        task = feed._task
        assert task is not None
        feed.remove(print)
        await asyncio.wait({task}, timeout=DEADLINE)
        assert task.cancelled()


async def test_a_look_that_fails_is_repeated_in_full_and_what_is_unchanged_is_not_read_again():
    looks, reads = asyncio.Queue(), []

    class Failing(PolledFeed):
        poll_seconds = 0.01

        def _snapshot(self):
            return ()

        async def _fingerprint(self):
            looks.put_nowait(len(reads))
            return "unchanged"

        async def _read(self):
            reads.append(self._seen)
            if len(reads) == 1:
                raise OSError("the directory is gone")

    feed = Failing()
    feed.add(print)
    async with asyncio.timeout(DEADLINE):
        assert [await looks.get() for _ in range(4)] == [0, 1, 2, 2]
    feed.stop()
