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
    "ending": "Ending the session; it has no proxy.",
    "removing-proxy": "Removing the proxy.",
    "leaving-job": "Detaching from job {job}.",
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
    "lifetime-over": "The proxy's longest lifetime of {seconds} s (--max-lifetime) is over, and the cluster ended it.",
    "slices-taken": "Its slices were taken by {taker}, because this session was silent for longer than its lease.",
    "log-unreadable": "The proxy's log cannot be read, so a slice that goes down will not be reported: {reason}",
    "removal-waits": "The proxy cannot be removed yet, retrying: {reason}",
    "lingering": "The kernel has ended; its proxy lingers for {seconds} s.",
    # Elastic training.
    "at-slice": "slice {number}",
    "at-slices": "slices {numbers}",
    "lost-slice": "Slice {number} lost.",
    "lost-slices": "Slices {numbers} lost.",
    "step-failed": "A step or a transfer failed.",
    "step-failed-because": "A step or a transfer failed: {reason}",
    "training-pauses": "Training pauses: {up} of at least {wanted} slices are up.",
    "training-continues": "Training continues on {slices}.",
    "attempt-begins": "Attempt {number} begins on {slices}.",
    "state-restored": "The state before step {step} is on {slices}.",
    "state-restored-repeating": "The state before step {step} is on {slices}; {number} steps are repeated.",
    "step-complete": "Step {step} is complete on {slices}.",
    "training-lost-proxy": "The proxy is gone, and all arrays on TPUs with it.",
    "no-proxy-yet": "No new proxy yet: {reason}",
    "new-proxy": "A new proxy is connected, with {slices}.",
    "new-proxy-without": "A new proxy is connected, with {slices}. Unusable from now on: {names}.",
    # Too few slices are free.
    "short-of-slices": "{found}, and {wanted}.",
    "short-of-slices-held": "{found}, and {wanted}: {holders}.",
    "some-free": "{number} of {all} slices of {service} are free",
    "only-free": "{number} of 1 slice of {service} is free",
    "some-ready": "{number} of {all} slices of {service} are ready",
    "only-ready": "{number} of 1 slice of {service} is ready",
    "some-wanted": "{number} are wanted",
    "one-wanted": "1 is wanted",
    "holds": "{holder} holds {number} for {time}",
    "under-a-minute": "less than a minute",
    "short-hint": "Add --wait to get them as soon as they are free, or ask for fewer.",
    "short-waited-hint": "Waited {seconds} s for them. --wait waits without end; or ask for fewer.",
    # Requests to the cluster that fail.
    "forbidden": "You are not allowed to {act}: {reason}",
    "permission-hint": "Ask for a {kind} with verb {verb} on {resource}: {command}.",
    "permissions-hint": "Ask for a {kind} with verbs {verb} and {other} on {resource}: {command}.",
    "policy-hint": "Denied by a policy of the cluster; ask your cluster administrator.",
    "exists-hint": "Choose another name, or delete that one first.",
    "not-found-hint": "Check the name and the namespace.",
    "conflict-hint": "The object was changed at the same time; read it again and retry.",
    "invalid-hint": "The API server rejected the object as invalid; the message names the field.",
    "overloaded-hint": "The API server is overloaded; try again in a moment.",
    "failed-hint": "Try again in a moment.",
    "certificate-wrong": "The certificate of {server} does not match the kubeconfig: {reason}.",
    "certificate-hint": "Fetch the credentials of the cluster again: it may have been recreated.",
    "tls-failed": "TLS with {server} failed: {reason}.",
    "tls-hint": "Check the server's address, and whether a proxy on the way intercepts TLS.",
    "no-answer": "it does not answer",
    "refused": "connection refused",
    "connection-lost": "The connection through the API server was lost: {reason}.",
    "connection-lost-hint": "Try again.",
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
    """An English sentence with its code and parameters; a parameter may be a sentence too, or a tuple of them."""

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


def say(code: str, /, **values: str | int | tuple[str, ...]) -> Sentence:
    """Return the sentence of `code`, one of :data:`SENTENCES`, with these parameters; a tuple's are joined by "; "."""
    words = {name: "; ".join(value) if isinstance(value, tuple) else value for name, value in values.items()}
    return Sentence(SENTENCES[code].format(**words), code, values)


def to_json(message: str, name: str = "text") -> dict[str, Any]:
    """Return the code and parameters of `message` under `name`, as JSON values; empty if it has none."""
    if not isinstance(message, Sentence):
        return {}
    return {name: {"code": message.code, "values": {key: _value_json(each) for key, each in message.values.items()}}}


def _value_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [{"message": str(each), **to_json(each)} for each in value]
    return {"message": str(value), **to_json(value)} if isinstance(value, Sentence) else value


def from_json(message: str, text: Any) -> str:
    """Return `message` with the code and parameters that :func:`to_json` has made; as it is if they are none."""
    if not isinstance(text, Mapping) or not isinstance(text.get("code"), str):
        return message
    values = {name: _value_from(value) for name, value in dict(text.get("values") or {}).items()}
    return Sentence(message, text["code"], values)


def _value_from(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(from_json(str(each["message"]), each.get("text")) for each in value)
    if isinstance(value, Mapping):
        return from_json(str(value["message"]), value.get("text"))
    return value if isinstance(value, str | int) else str(value)
