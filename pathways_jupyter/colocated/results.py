"""Results of a call, host by host: output in order, value, arrays, and failures; or why it was interrupted."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pathways_jupyter.base.sentences import Face, worded
from pathways_jupyter.colocated.channel import Answer
from pathways_jupyter.colocated.displays import harmless
from pathways_jupyter.colocated.errors import Failure, HostError, host_text
from pathways_jupyter.colocated.host import Host
from pathways_jupyter.colocated.remote.transcript import rendered
from pathways_jupyter.colocated.value_reader import Reader

_HOSTS_OWN = re.compile(r"\b0x[0-9a-f]+\b|(?<=device ID )\d+")


@dataclass(frozen=True)
class Text:
    """Something printed: `stream` is ``stdout`` or ``stderr``."""

    stream: str
    text: str


@dataclass(frozen=True)
class Display:
    """Something displayed.

    Attributes:
      data: By MIME type; images as bytes.
      left: What was too large to come along: MIME type to size in bytes.
      value: Whether it is the value of the cell's last expression.
    """

    data: Mapping[str, str | bytes]
    left: Mapping[str, int] = field(default_factory=dict)
    value: bool = False


@dataclass(frozen=True)
class HostResult:
    """One host's part.

    Attributes:
      host: The host.
      items: What it printed and displayed, in order.
      size: Bytes of text that it printed in all.
      tail: The end of the text, when it is more than `items` hold; else empty.
      written: The last expression's value as JSON and parts; None when there is none, or it could only be shown.
      unpickle: Whether hosts may run code here.
      failure: What it raised, or None.
      boot: Identifies the sidecar's process.
    """

    host: Host
    items: tuple[Text | Display, ...]
    size: int = 0
    tail: str = ""
    written: tuple[Any, Sequence[bytes]] | None = field(default=None, repr=False)
    unpickle: bool = field(default=False, repr=False)
    failure: Failure | None = None
    boot: str = field(default="", repr=False)

    @property
    def text(self) -> str:
        """Printed text, as far as it came along."""
        return "".join(item.text for item in self.items if isinstance(item, Text))

    @functools.cached_property
    def value(self) -> Any:
        """The last expression's value, read when it is first used; None if it was too large to be sent.

        Raises:
          ColocatedError: It is not read from hosts, as it could run code here; or it cannot be read here.
        """
        if self.written is None:
            return None
        value, parts = self.written
        return Reader(f"The value of {self.host}", parts, unpickle=self.unpickle).read(value)

    def lines(self) -> Iterator[Text]:
        """Return what was printed line by line, as a screen shows it, in the order in which lines were completed."""
        partial: dict[str, str] = {}
        for item in self.items:
            if isinstance(item, Text):
                *lines, rest = (partial.pop(item.stream, "") + item.text).split("\n")
                yield from (Text(item.stream, rendered(line)) for line in lines)
                if rest:
                    partial[item.stream] = rest
        yield from (Text(stream, rendered(rest)) for stream, rest in partial.items())


@dataclass(frozen=True)
class CallResult:
    """A whole call.

    Attributes:
      call: Its id.
      hosts: Every host's part, in the hosts' order.
      outputs: Named outputs. Arrays are global; a value that is not the same on all hosts is a
        :class:`~pathways_jupyter.colocated.trees.PerHost`.
    """

    call: str
    hosts: tuple[HostResult, ...]
    outputs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def values(self) -> dict[int, Any]:
        """The last expression's value by host index; raises what :attr:`HostResult.value` raises."""
        return {result.host.index: result.value for result in self.hosts}

    def error(self) -> HostError | None:
        """Return what hosts raised, equal exceptions counted as one; None when none did."""
        return error_of([result.failure for result in self.hosts])


def read(answer: Answer, *, unpickle: bool) -> HostResult:
    """Return one host's part from its answer to a call."""
    head = answer.head
    transcript = head["transcript"]
    blobs = answer.parts[head["displays"] :]
    items: list[Text | Display] = []
    for item in transcript["items"]:
        if item["kind"] != "display":
            items.append(Text(item["kind"], item["text"]))
            continue
        data: dict[str, str | bytes] = {}
        left = {}
        for kind, each in item["data"].items():
            if "blob" in each:
                blob = blobs[each["blob"]]
                data[kind] = blob.decode("utf-8", "replace") if each["text"] else blob
            else:
                left[host_text(kind)] = int(each["size"])
        items.append(Display(data if unpickle else harmless(data), left))
    value = None
    if head["value"] is not None:
        # Figures are shown before the value, which is always the last display.
        last = items[-1] if items else None
        if isinstance(last, Display):
            items[-1] = Display(last.data, last.left, value=True)
        if head["value"]["written"] is not None:
            value = (head["value"]["written"], answer.parts)
    return HostResult(
        host=answer.host,
        items=tuple(items),
        size=transcript["size"],
        tail=transcript["tail"],
        written=value,
        unpickle=unpickle,
        failure=failure(answer.host, head["error"]),
        boot=head["boot"],
    )


def error_of(failures: Sequence[Failure | None]) -> HostError | None:
    """Return what hosts raised, from each host's failure, if any; equal exceptions count as one."""
    groups: dict[tuple[str, ...], list[Failure]] = {}
    for each in failures:
        if each is not None:
            # Without what differs between hosts that do the same: addresses of objects, numbers of devices.
            key = (each.type, *(_HOSTS_OWN.sub("", text) for text in (each.message, each.traceback)))
            groups.setdefault(key, []).append(each)
    merged = [
        replace(alike[0], hosts=tuple(index for each in alike for index in each.hosts)) for alike in groups.values()
    ]
    return HostError(merged, len(failures)) if merged else None


def failure(host: Host, error: Mapping[str, Any] | None) -> Failure | None:
    """Return the failure that a host reported, if any."""
    if error is None:
        return None
    texts = {each: host_text(error[each]) for each in ("type", "message", "traceback", "text")}
    return Failure((host.index,), line=int(error["line"]) if error["line"] else None, **texts)


class Interrupted(KeyboardInterrupt):
    """The call was interrupted, and its hosts were asked to stop.

    Args:
      message: Where the hosts were, in one line.
      hint: How to end code that did not stop, in terms of the magics.
      answers: The hosts' answers; None if they did not answer.

    Attributes:
      result: The decoded answers; set for cells.
    """

    def __init__(self, message: str, answers: Sequence[Answer] | None = None, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        if hint:
            self.add_note(worded(hint, Face.SCRIPT))
        self.answers = answers
        self.result: CallResult | None = None

    def _render_traceback_(self) -> list[str]:
        said = str(self).rstrip(".")
        return [f"Interrupted: {said}. {self.hint}" if self.hint else f"Interrupted: {self}"]
