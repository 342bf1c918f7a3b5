"""A process with an unmodified JAX, which runs the snippets that a test sends it: one JSON object a line each way.

Started as ``jax_client.py TARGET``; with an empty target it uses plain CPU devices instead of a proxy.
"""

import io
import json
import os
import sys
import traceback

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

target = sys.argv[1]
os.environ["JAX_PLATFORMS"] = "proxy" if target else "cpu"
os.environ["JAX_BACKEND_TARGET"] = target
os.environ["IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS"] = "true"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import jax  # noqa: E402  (JAX reads the environment when it is imported)
from jax.extend import backend  # noqa: E402
from jax.extend.backend import ifrt_proxy  # noqa: E402

if target:
    backend.register_backend_factory(
        "proxy", lambda: ifrt_proxy.get_client(target, ifrt_proxy.ClientConnectionOptions()), priority=-1
    )
else:
    jax.config.update("jax_num_cpu_devices", 8)

names: dict[str, object] = {"__name__": "__main__", "jax": jax}
for line in sys.stdin:
    request = json.loads(line)
    try:
        exec(compile(request["code"], request["name"], "exec"), names)
        answer = {"value": names.get("result")}
        json.dumps(answer)
    except BaseException as error:
        text = io.StringIO()
        traceback.print_exc(file=text)
        answer = {"error": type(error).__name__, "message": str(error), "traceback": text.getvalue()}
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
