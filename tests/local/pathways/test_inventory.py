"""Granting slices to requests."""

from __future__ import annotations

from pathways_jupyter.base import tpu
from pathways_jupyter.local.pathways.inventory import RegisteredHost, SliceRequest, Slices

SMALL, LARGE = (tpu.parse_instance_type(each) for each in ("tpuv6e:2x2", "tpuv6e:2x4"))


def _ready(*kinds) -> Slices:
    slices = Slices(kinds)
    for index, kind in enumerate(kinds):
        for host in range(kind.hosts):
            slices.add(RegisteredHost(index, host, f"worker-{index}", f"pod-{index}-{host}"))
    return slices


def _placed(slices: Slices) -> list[str]:
    return [each.name for each in slices.place()]


def test_a_request_is_met_as_a_whole_or_not_at_all():
    slices = _ready(SMALL, SMALL, LARGE)
    first, both = SliceRequest("first", [SMALL]), SliceRequest("both", [SMALL, SMALL])
    for each in (first, both):
        slices.waiting.append(each)
    assert _placed(slices) == ["first"]
    assert both.granted == []
    slices.release(first)
    assert _placed(slices) == ["both"]
    assert [each.index for each in both.granted] == [0, 1]


def test_requests_for_the_same_type_are_served_in_order_and_others_are_not_kept_back():
    slices = _ready(SMALL, SMALL, LARGE)
    for name, wanted in (("first", [SMALL]), ("both", [SMALL, SMALL]), ("late", [SMALL]), ("other", [LARGE])):
        slices.waiting.append(SliceRequest(name, wanted))
    assert _placed(slices) == ["first", "other"]


def test_a_proxy_takes_back_what_it_had_and_nothing_else():
    slices = Slices([SMALL, SMALL])
    returning = SliceRequest("returning", [SMALL], held=(1,))
    slices.waiting.append(returning)
    assert _placed(slices) == []
    slices.gathering = False
    assert _placed(slices) == ["returning"]
    assert [each.index for each in returning.granted] == [1]
    assert not returning.granted[0].ready


def test_workers_that_do_not_belong_are_refused():
    slices = Slices([LARGE])
    assert "no slice 1" in slices.refusal(RegisteredHost(1, 0, "job", "pod"))
    assert "no host 2" in slices.refusal(RegisteredHost(0, 2, "job", "pod"))
    assert slices.refusal(RegisteredHost(0, 1, "job", "pod")) == ""
