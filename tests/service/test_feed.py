"""Feeds whose listeners fail like the remote end of a connection, and must not affect the publisher."""

import asyncio

from pathways_jupyter.service.feed import Feed

DEADLINE = 60.0


class Quiet(Feed):
    """Publishes only what a test does."""

    async def _watch(self):
        await asyncio.Event().wait()

    def _snapshot(self):
        return ()


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


async def test_a_feed_runs_while_it_has_listeners_and_can_be_started_again():
    feed = Quiet()
    for _ in range(2):
        feed.add(print)
        task = feed._task
        assert task is not None
        feed.remove(print)
        await asyncio.wait({task}, timeout=DEADLINE)
        assert task.cancelled()
