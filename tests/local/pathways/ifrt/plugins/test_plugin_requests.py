"""Plugin programs that are wrong: an error that says so, and a proxy that goes on."""

from __future__ import annotations

import json

import pytest

NO_DEVICES = {"reshardRequest": {"donateInput": False, "inSharding": [], "outSharding": []}}
ELSEWHERE = {"profileRequest": {"traceLocation": "/tmp/x"}}
ESCAPING = {"profileRequest": {"traceLocation": "gs://b/x", "xprofTraceOptions": {"traceSessionName": "../x"}}}


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("{", "INVALID_ARGUMENT: Bad PluginProgram: not a JSON object"),
        ("[]", "INVALID_ARGUMENT: Bad PluginProgram: not a JSON object"),
        (json.dumps({"compileRequest": {}}), "UNIMPLEMENTED: Bad PluginProgram: 'compileRequest'"),
        (json.dumps({"persistenceReadRequest": {}}), "INVALID_ARGUMENT: Bad PluginProgram: persistenceReadRequest"),
        (json.dumps({"bulk_persistence_write_request": {"write_requests": []}}), "INVALID_ARGUMENT: .* at least one"),
        (json.dumps(NO_DEVICES), "INVALID_ARGUMENT: .* as many shardings"),
        (json.dumps(ELSEWHERE), "INVALID_ARGUMENT: '/tmp/x' is not a location in a bucket"),
        (json.dumps(ESCAPING), "INVALID_ARGUMENT: '../x' cannot be the name"),
    ],
)
def test_a_wrong_request_is_refused_when_it_is_compiled(client, program, error):
    client.run("from pathwaysutils import plugin_executable\nresult = None")
    with pytest.raises(Exception, match=error):
        client.run(f"result = plugin_executable.PluginExecutable({program!r}) and None")
    assert client.run("import jax.numpy as jnp\nresult = float(jnp.arange(8.0).sum())") == 28


def test_a_proxy_without_a_bucket_says_so(client):
    request = json.dumps({"profileRequest": {"traceLocation": "gs://b/x"}})
    begin = "from pathwaysutils import plugin_executable\n"
    client.run(f"{begin}profile = plugin_executable.PluginExecutable({request!r})\nresult = None")
    with pytest.raises(Exception, match="UNIMPLEMENTED: this proxy has no bucket"):
        client.run("result = profile.call()[1].result()")
