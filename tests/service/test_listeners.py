"""Listeners that fail like the remote end of a connection, and must not affect the publisher."""

from pathways_jupyter.service.listeners import Listeners


def test_a_listener_that_raises_is_removed_and_the_others_get_every_message():
    listeners, got = Listeners(), []

    def broken(message):
        raise ConnectionError("closing")

    listeners.add(broken)
    listeners.add(got.append)
    listeners.publish({"n": 1})
    assert broken not in listeners
    assert got.append in listeners
    listeners.publish({"n": 2})
    assert got == [{"n": 1}, {"n": 2}]


def test_a_listener_that_another_one_removes_gets_nothing_more():
    listeners, got = Listeners(), []

    def one(message):
        got.append("one")
        listeners.remove(other)

    def other(message):
        got.append("other")
        listeners.remove(one)

    listeners.add(one)
    listeners.add(other)
    listeners.publish({})
    listeners.publish({})
    # Only the first of them is called, and their order is not defined.
    assert got in (["one", "one"], ["other", "other"])
