"""Sentences that a page can show in another language.

Each has a code, and keeps its parameters beside the English text. :func:`say` makes a :class:`Sentence`, which is a
string: everything that prints, logs or compares messages takes it as it is. Where it is sent to a page, its code and
parameters go along, so that the page can compose the same sentence from its own translation of the code. A page that
has none shows the English text.

``jlpm texts`` adds these codes to the sidebar's texts to be translated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SENTENCES: Mapping[str, str] = {
    # Names of slices, for the beginning of a sentence.
    "slice": "Slice {number}",
    "slice-of-both": "Slice {number} (your {index})",
    "slice-of-yours": "Your slice {index}",
    # Connecting.
    "discovering": "Looking for the service.",
    "creating-proxy": "Creating proxy {proxy}.",
    "finding-job": "Looking for job {job}.",
    "job-runs": "Job {job} runs.",
    "pod-starting": "Pod {pod} is starting.",
    "pod-unscheduled": "Pod {pod} waits for a node: {reason}",
    "pod-unready": "Pod {pod} is not ready any more: {reason}.",
    "pod-ready": "Pod {pod} is ready.",
    "slice-placed": "{slice} is placed.",
    "slice-placed-on": "{slice} is placed on {worker}.",
    "all-placed": "All slices are placed.",
    "only-placed": "The slice is placed.",
    "placement-unreadable": "Whether the slices are placed is not known, because the proxy's log cannot be read. "
    "They are free; using the proxy.",
    "placement-silent": "The proxy has not said that its slices are placed, though they are free; using it anyway.",
    "taking-fewer": "Taking {number} of {wanted} slices of {type}: the others of {service} are not free.",
    "took-slices": "Took the slices of {holder}, which had been silent for {time}.",
    "no-tunnel": "No tunnel: {path}.",
    "tunnel-open": "The tunnel is open.",
    "tunnel-open-because": "The tunnel is open. {reason}",
    # States.
    "connected": "Connected.",
    "connecting-again": "Connecting again.",
    "degraded": "Degraded: {up} of {all} slices up.",
    "degraded-only": "Degraded: the slice is down.",
    "all-up": "All slices are up again.",
    "only-up": "The slice is up again.",
    "interrupted": "The way to the cluster is interrupted: {reason} Arrays are kept for {minutes} min; trying again.",
    "restored": "Connected again after {seconds} s; the arrays were kept.",
    "arrays-lost": "{reason} Its arrays are lost.",
    "removing-proxy": "Removing the proxy.",
    "leaving-job": "Letting go of job {job}.",
    "disconnected": "Disconnected.",
    # Slices and proxies while connected.
    "slice-down": "{slice} is down.",
    "slice-up": "{slice} is placed again.",
    "slice-up-on": "{slice} is placed on {worker} again.",
    "pod-deleted": "Pod {pod} was deleted.",
    "pod-deleting": "Pod {pod} is being deleted.",
    "pod-ended": "Pod {pod} ended: {reason}.",
    "container-ended": "Container {container} of pod {pod} ended: {reason}.",
    "pod-unwatched": "The proxy's pod can no longer be watched: {reason}",
    "tunnel-failed": "The tunnel failed: {reason}",
    "lease-deleted": "The proxy's Lease was deleted, by a sweep or by hand.",
    "slices-taken": "Its slices were taken by {taker}, because this session was silent for longer than its lease.",
    "log-unreadable": "The proxy's log cannot be read, so a slice that goes down will not be reported: {reason}",
    "removal-waits": "The proxy cannot be removed yet, retrying: {reason}",
    "lingering": "The kernel has ended; its proxy lingers for {seconds} s.",
    # Requests of a page that are refused.
    "cluster-unreachable": "The API server {server} cannot be reached: {reason}.",
    "cluster-unreachable-hint": "Check that the cluster is running, the context is right, and the network "
    "(VPN, private endpoint).",
    "credentials-refused": "The API server does not accept these credentials.",
    "no-kubeconfig": "The kubeconfig {file}, set by KUBECONFIG, does not exist.",
    "no-kubeconfig-hint": "Correct or unset KUBECONFIG, and restart the Jupyter server.",
    "not-removed": "{job} could not be removed: {reason}",
    "not-removed-hint": "Try again later.",
    "not-embedded": "Service {service} is on a real cluster; only slices of the embedded cluster can be broken here.",
    "not-embedded-hint": "%pathways elastic inject slice-down --yes takes down a slice of your own session there.",
    "no-embedded": "The embedded cluster is not running.",
    "no-embedded-hint": "%pathways connect --local starts it, and so does pathways-jupyter local up.",
    "embedded-ended": "The embedded cluster of this machine has ended.",
    "embedded-ended-hint": "Start it again: %pathways connect --local, or pathways-jupyter local up.",
    "no-session": "There is no session {session}.",
    "no-session-hint": "It may have ended in the meantime.",
}
"""The English text of each code, with its parameters in braces."""


class Sentence(str):
    """An English sentence with its code and parameters; a parameter may be a sentence too."""

    code: str
    values: Mapping[str, Any]

    def __new__(cls, english: str, code: str, values: Mapping[str, Any]) -> Sentence:
        """Create the sentence; :func:`say` composes its English text."""
        self = super().__new__(cls, english)
        self.code, self.values = code, values
        return self

    def __getnewargs__(self) -> tuple[str, str, Mapping[str, Any]]:  # type: ignore[override]
        """Copy and pickle it with its code."""
        return str(self), self.code, self.values


def say(code: str, /, **values: str | int) -> Sentence:
    """Return the sentence of `code`, one of :data:`SENTENCES`, with these parameters."""
    return Sentence(SENTENCES[code].format(**values), code, values)


def to_json(message: str, name: str = "text") -> dict[str, Any]:
    """Return the code and parameters of `message` under `name`, as JSON values; empty if it has none."""
    if not isinstance(message, Sentence):
        return {}
    values = {
        key: {"message": str(value), **to_json(value)} if isinstance(value, Sentence) else value
        for key, value in message.values.items()
    }
    return {name: {"code": message.code, "values": values}}


def from_json(message: str, text: Any) -> str:
    """Return `message` with the code and parameters that :func:`to_json` has made; as it is if they are none."""
    if not isinstance(text, Mapping) or not isinstance(text.get("code"), str):
        return message
    values = {}
    for name, value in dict(text.get("values") or {}).items():
        values[name] = from_json(str(value["message"]), value.get("text")) if isinstance(value, Mapping) else value
    return Sentence(message, text["code"], values)
