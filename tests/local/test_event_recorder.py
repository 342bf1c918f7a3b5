from __future__ import annotations

from pathways_jupyter.local.apiserver.resources import EVENTS, PODS
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.event_recorder import KEPT, Recorder


def test_events_are_counted_and_bounded():
    store = Store()
    containers = [{"name": "c", "image": "x"}]
    pod = store.create(PODS, {"metadata": {"name": "p"}, "spec": {"containers": containers}}, namespace="default")
    recorder = Recorder(store)
    recorder.record(pod, "test", "Again", "the same")
    recorder.record(pod, "test", "Again", "the same")
    [event] = store.list(EVENTS)
    assert event["count"] == 2
    store.delete(EVENTS, "default", event["metadata"]["name"])
    recorder.record(pod, "test", "Again", "the same")
    assert [each["count"] for each in store.list(EVENTS)] == [1]
    for number in range(KEPT + 10):
        recorder.record(pod, "test", "Flood", str(number))
    assert len(store.list(EVENTS)) == KEPT
    assert not [each for each in store.list(EVENTS) if each["reason"] == "Again"]
