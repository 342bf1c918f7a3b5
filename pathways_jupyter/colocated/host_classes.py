"""Classes that hosts have defined, and send along with their objects: one here where all hosts define the same.

cloudpickle gives such a class an id in each process, by which it is known again. So two hosts' objects would be of two
classes here, and never equal, however alike they are.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

_ID = re.compile(rb"(?<=\x8c\x20)[0-9a-f]{32}")
"""A string of 32 hexadecimal digits in a pickle."""


FirstClasses = dict[tuple[bytes, int], bytes]
"""The ids of the classes that the first host has sent, by their definitions, of which a host may have several alike."""


class HostClasses:
    """Unpickles what one host has sent.

    Args:
      first: Shared by the hosts of a call: the first host's class takes the place of the others' classes whose
        definition is the same in every byte.
    """

    def __init__(self, first: FirstClasses) -> None:
        self._first = first
        self._instead: dict[bytes, bytes] = {}
        self._seen: Counter[bytes] = Counter()

    def load(self, data: bytes) -> Any:
        """Return the value; raises what unpickling raises."""
        from jax.experimental.colocated_python import serialization

        value = serialization._deserialize(data)
        instead = self._instead
        for name, made in _classes(data).items():
            if name in instead:
                continue
            try:
                definition = _without_ids(serialization._serialize(made))
            except Exception:
                # It holds something that cannot be sent again from here, so that it cannot be compared.
                continue
            instead[name] = self._first.setdefault((definition, self._seen[definition]), name)
            self._seen[definition] += 1
        if all(name == first for name, first in instead.items()):
            return value
        return serialization._deserialize(_ID.sub(lambda found: instead.get(found[0], found[0]), data))


def _classes(data: bytes) -> dict[bytes, type]:
    """Return the classes that a pickle defines, by their ids; it has been read."""
    from cloudpickle import cloudpickle

    known = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID
    found = {name: known.get(name.decode()) for name in _ID.findall(data)}
    return {name: made for name, made in found.items() if made is not None}


def _without_ids(data: bytes) -> bytes:
    """Return the pickle of a class with one id for all classes that it defines."""
    ids = set(_classes(data))
    return _ID.sub(lambda found: b"0" * 32 if found[0] in ids else found[0], data)
