"""pathwaysutils' plugin programs: arrays written and read by the proxy, and resharded there; plain JAX elsewhere."""

import datetime
import os

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y"))
array = jax.device_put(np.arange(64.0, dtype="f4").reshape(8, 8), NamedSharding(mesh, P("x", "y")))
other = NamedSharding(mesh, P("y"))
if os.environ["JAX_PLATFORMS"] == "cpu":
    read = moved = jax.device_put(array, other)
else:
    from pathwaysutils.experimental import reshard
    from pathwaysutils.persistence import helper

    limit = datetime.timedelta(minutes=1)
    helper.write_arrays("gs://pathways-local/plugins", ["array"], [array], limit).result()
    (read,), future = helper.read_arrays(
        "gs://pathways-local/plugins", ["array"], [array.dtype], [array.shape], [other], mesh.devices, limit
    )
    future.result()
    moved = reshard.reshard(array, other)
for name, result in (("read", read), ("moved", moved)):
    print(name, result.sharding.spec, float((np.asarray(result) * np.arange(8)).sum()))
