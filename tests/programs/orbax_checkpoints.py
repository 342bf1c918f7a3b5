"""Checkpoints of sharded arrays by Orbax: in the bucket where there is one, and read into another sharding."""

import os
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y"))
state = {
    "rows": jax.device_put(np.arange(64.0).reshape(8, 8), NamedSharding(mesh, P("x", "y"))),
    "half": jax.device_put(jnp.arange(8, dtype="bfloat16"), NamedSharding(mesh, P("y"))),
}
place = "gs://pathways-local/orbax" if "STORAGE_EMULATOR_HOST" in os.environ else tempfile.mkdtemp()
with ocp.CheckpointManager(place, options=ocp.CheckpointManagerOptions(max_to_keep=2)) as manager:
    for step in range(3):
        manager.save(step, args=ocp.args.StandardSave(state))
        state = jax.tree.map(lambda leaf: leaf + 1, state)
    manager.wait_until_finished()
    print("kept", sorted(manager.all_steps()))
    wanted = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, P("y"))), state
    )
    found = manager.restore(2, args=ocp.args.StandardRestore(wanted))
print("rows", found["rows"].sharding.spec, float(found["rows"].sum()), float(found["half"].sum()))
