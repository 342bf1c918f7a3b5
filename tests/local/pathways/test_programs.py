"""Resource manager, workers and proxies as processes: which proxy gets which slice, and what each reports."""

from __future__ import annotations

import signal

import pytest


@pytest.fixture
def fresh(make_service, warm_forks):
    return make_service(forks=warm_forks)


def test_the_logs_carry_the_lines_that_people_and_tools_look_for(fresh):
    workers = [fresh.worker(each) for each in range(2)]
    fresh.resource_manager.log.wait(
        r"^I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ \S+:\d+\] \*\*\* 2/2 Pathways Slices Now Ready$"
    )
    for worker in workers:
        worker.log.wait(r"argv\[2\]: '--resource_manager_address=head.service:29001'")
        worker.log.wait(r"Pathways Server serving on \[::\]:29005")
        worker.log.wait(r"MegaScale transport initialized\.$")
        worker.log.wait(r"MegaScale transport init succeeded\.$")
    proxy = fresh.proxy("proxy")
    proxy.log.wait("Signaling to RM")
    for each in range(2):
        proxy.log.wait(rf"Transition slice {each} \(tpuv6e:2x2\) unplaced -> placed on service-worker-{each}$")


def test_a_slice_is_ready_when_all_of_its_hosts_are(make_service):
    service = make_service(instance_type="tpuv6e:2x4", slices=1)
    service.worker(0, host=1)
    line = service.resource_manager.log.wait("Host 1 of slice 0 registered")
    assert "Now Ready" not in str(service.resource_manager.log)
    service.worker(0, host=0)
    service.resource_manager.log.wait(r"\*\*\* 1/1 Pathways Slices Now Ready", after=line)


def test_a_proxy_waits_for_taken_slices_and_gets_them_when_their_holder_goes(fresh):
    for each in range(2):
        fresh.worker(each)
    fresh.resource_manager.log.wait("2/2 Pathways Slices Now Ready")
    first = fresh.proxy("first", slices=1)
    first.log.wait("unplaced -> placed")
    second = fresh.proxy("second", slices=2)
    second.log.wait("Waiting for slices: slice 0 is held by first")
    first.kill()
    second.log.wait("slice 0 .* unplaced -> placed")
    second.log.wait("slice 1 .* unplaced -> placed")


def test_a_large_request_is_not_overtaken_by_later_small_ones(fresh):
    for each in range(2):
        fresh.worker(each)
    first = fresh.proxy("first", slices=1)
    first.log.wait("unplaced -> placed")
    large = fresh.proxy("large", slices=2)
    large.log.wait("Waiting for slices")
    small = fresh.proxy("small", slices=1)
    small.log.wait("Waiting for slices: .*1 ahead in the queue")
    first.kill()
    large.log.wait("slice 1 .* unplaced -> placed")
    large.kill()
    small.log.wait("unplaced -> placed")


def test_a_request_that_can_never_be_met_is_refused(fresh):
    proxy = fresh.proxy("greedy", slices=3)
    proxy.log.wait("FAILED_PRECONDITION: 3 slices of tpuv6e:2x2 are wanted, and this service has 2")
    assert proxy.process.wait(60) == 1


@pytest.mark.parametrize(
    ("program", "flags", "said"),
    [
        ("worker", ["--resource_manager_address=head"], "'head' is not of the form HOST:PORT. For example: "),
        ("proxy_program", ["--resource_manager_address=head"], "'head' is not of the form HOST:PORT. For example: "),
        ("resource_manager", ["--instance_type="], "No slices were requested. For example: "),
    ],
)
def test_a_wrong_value_is_refused_with_an_example(fresh, program, flags, said):
    started = fresh.start(program, "broken", ["--server_port=29000", *flags])
    assert started.process.wait(60) == 2
    started.log.wait(said)


def test_a_worker_that_dies_and_its_replacement_are_reported_to_the_holder_of_the_slice(fresh):
    fresh.worker(0)
    doomed = fresh.worker(1)
    proxy = fresh.proxy("proxy")
    line = proxy.log.wait("All 2 slices are placed")
    doomed.kill()
    line = proxy.log.wait(r"Transition slice 1 \(tpuv6e:2x2\) placed -> unplaced from service-worker-1", after=line)
    fresh.worker(1)
    proxy.log.wait(r"Transition slice 1 \(tpuv6e:2x2\) unplaced -> placed on service-worker-1", after=line)


def test_a_worker_that_stands_still_counts_as_gone(fresh):
    frozen = fresh.worker(0)
    fresh.worker(1)
    fresh.resource_manager.log.wait("2/2 Pathways Slices Now Ready")
    frozen.process.send_signal(signal.SIGSTOP)
    fresh.resource_manager.log.wait(r"Slice 0 .* is down: .*silent")


def test_a_worker_that_is_replaced_before_it_is_missed_counts_as_lost(fresh):
    frozen = fresh.worker(0)
    fresh.worker(1)
    proxy = fresh.proxy("proxy")
    line = proxy.log.wait("All 2 slices are placed")
    frozen.process.send_signal(signal.SIGSTOP)
    fresh.worker(0)
    line = proxy.log.wait(r"placed -> unplaced from service-worker-0: .*its replacement has registered", after=line)
    proxy.log.wait(r"Transition slice 0 \(tpuv6e:2x2\) unplaced -> placed on service-worker-0", after=line)


def test_a_new_resource_manager_finds_everybody_where_they_were(fresh):
    for each in range(2):
        fresh.worker(each)
    fresh.resource_manager.log.wait("2/2 Pathways Slices Now Ready")
    second = fresh.proxy("second", slices=1)
    second.log.wait("placed on service-worker-0")
    first = fresh.proxy("first", slices=1)
    line = first.log.wait("All 1 slices are placed")
    fresh.resource_manager.kill()
    first.log.wait("Lost the resource manager", after=line)
    manager = fresh.start_resource_manager()
    manager.log.wait(r"Placed proxy first on slices \[1\]")
    manager.log.wait(r"Placed proxy second on slices \[0\]")
    manager.log.wait("2/2 Pathways Slices Now Ready")


def test_a_worker_that_comes_again_takes_its_own_place(fresh):
    first = fresh.worker(0)
    fresh.worker(1)
    line = fresh.resource_manager.log.wait("2/2 Pathways Slices Now Ready")
    first.process.send_signal(signal.SIGSTOP)
    second = fresh.worker(0)
    line = fresh.resource_manager.log.wait("Host 0 of slice 0 registered", after=line)
    first.kill()
    fresh.proxy("proxy").log.wait("All 2 slices are placed")
    second.kill()
    fresh.resource_manager.log.wait("Slice 0 .* is down", after=line)
    fresh.worker(0)
    fresh.resource_manager.log.wait(r"Slice 0 .* is healed", after=line)
