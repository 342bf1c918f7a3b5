"""Requests about arrays whose parts do not fit each other are refused as such, not with an error of Python's."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pathways_jupyter.local.pathways.ifrt import array_requests, executable_requests, messages
from pathways_jupyter.local.pathways.ifrt.statuses import Code

_ONE = np.float32([1, 2, 3])
_NUMBERS = (0, 0, 1, 2, 3, 7, 8, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -1, -(1 << 63))
_NAMES = sorted({*array_requests.HANDLERS, *executable_requests.HANDLERS} - {"compile"})


def _fill(message, rng: random.Random, arrays: list[int], depth: int = 0) -> None:
    """Fill a message of any type: handles that exist, numbers at the ends of their range, lists of any length."""
    for field in message.DESCRIPTOR.fields:
        repeated = field.is_repeated
        if field.name in ("sharding", "serialized_sharding") and rng.random() < 0.8:
            _sharding(getattr(message, field.name), rng)
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        elif field.message_type is not None:
            for _ in range(rng.choice((0, 1, 1, 2)) if repeated else 1) if depth < 6 else ():
                value = getattr(message, field.name)
                if repeated:
                    _fill(value.add(), rng, arrays, depth + 1)
                elif rng.random() < 0.7:
                    value.SetInParent()
                    _fill(value, rng, arrays, depth + 1)
        elif repeated:
            for _ in range(rng.choice((0, 1, 1, 2, 3))):
                _set(lambda value, name=field.name: getattr(message, name).append(value), field, rng, arrays)
        elif rng.random() < 0.9:
            _set(lambda value, name=field.name: setattr(message, name, value), field, rng, arrays)


def _set(put, field, rng: random.Random, arrays: list[int]) -> None:
    choices = [rng.choice(_NUMBERS), rng.choice(_NUMBERS)]
    if "handle" in field.name:
        choices += arrays * 2
    if field.name == "kind":
        choices += [11, 11, 11]
    for value in (rng.choice(choices), bool(rng.randrange(2)), 1.5, "x", b"x"):
        try:
            put(value)
            return
        except (TypeError, ValueError, OverflowError):
            continue


def _sharding(message, rng: random.Random) -> None:
    message = getattr(message, "serialized_sharding", message)
    if "type_name" not in message.DESCRIPTOR.fields_by_name:
        return
    devices = rng.choice(([0], [0], [0, 1], [1, 0, 2, 3], list(range(8)), [99], []))
    kind = rng.randrange(4)
    if kind == 0:
        single = messages.SingleDeviceSharding(device_id=(devices or [0])[0])
        message.type_name, message.data = "xla::ifrt::SingleDeviceSharding", single.SerializeToString()
    elif kind == 1:
        even = messages.ConcreteEvenSharding()
        even.devices.device_ids.extend(devices)
        even.shape.dims.extend(rng.choice(([8], [8, 2], [3], [])))
        even.shard_shape.dims.extend(rng.choice(([4], [1, 2], [16], [0], [])))
        message.type_name, message.data = "xla::ifrt::ConcreteEvenSharding", even.SerializeToString()
    elif kind == 2:
        hlo = messages.HloSharding(xla_op_sharding=rng.choice((b"", b"\x08\x03", b"\x08\x03\x1a\x01\x02", b"\xff")))
        hlo.devices.device_ids.extend(devices)
        message.type_name, message.data = "xla::ifrt::HloSharding", hlo.SerializeToString()
    else:
        message.type_name, message.data = "xla::ifrt::SingleDeviceSharding", b"\xff\xff"


@pytest.mark.parametrize("seed", range(4))
def test_no_request_is_answered_with_an_error_of_python(raw, seed):
    rng, session = random.Random(seed), raw()
    asked: dict[int, str] = {}
    for number in range(250):
        if number % 25 == 0:
            arrays = [session.make_array(_ONE, device=number % 3)[0] for _ in range(3)]
        name, made = rng.choice(_NAMES), session.handle()
        asked[session.send(name, lambda message, arrays=arrays: _fill(message, rng, arrays))] = name
        asked[session.send("check_value_ready", value_handles=[made, *arrays])] = f"an array after {name}"
    array, _ = session.make_array(_ONE)
    np.testing.assert_array_equal(session.read(array, np.float32), _ONE)
    # What waits for host buffers that never come is not answered.
    answers = [(name, session.answer(op)) for op, name in asked.items() if session.answered(op)]
    assert len(answers) > 250
    wrong = {
        f"{name}: {answer.response_metadata.status.message}"
        for name, answer in answers
        if answer.response_metadata.status.code in (Code.INTERNAL, Code.UNKNOWN)
    }
    assert not wrong
