"""Move arrays between chips and the CPU devices beside them; how they are sharded stays the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base import shardings
from pathways_jupyter.base.text import each_of
from pathways_jupyter.colocated.channel import Channel, channel, explain
from pathways_jupyter.colocated.errors import CheckError, ColocatedError, LostError, name_hosts
from pathways_jupyter.colocated.host import Host
from pathways_jupyter.saved import arrays as stored

if TYPE_CHECKING:
    import jax


def require_data(arrays: Mapping[str, jax.Array], among: Sequence[Host]) -> None:
    """Fail when an array's data is gone.

    Raises:
      CheckError: It was deleted or donated, or it lay on chips of a proxy that was replaced.
    """
    clients = {device.client for host in among for device in host.chips}
    for name, array in arrays.items():
        if array.is_deleted():
            raise CheckError(
                f"{name} has no data any more: it was deleted, donated, or lost with a connection.",
                hint="Make it again.",
            )
        if any(device.platform != "cpu" and device.client not in clients for device in array.sharding.device_set):
            raise CheckError(f"{name} was lost with the proxy that it lay on.", hint="Make it again.")


def needed(arrays: Mapping[str, jax.Array], among: Sequence[Host]) -> tuple[Host, ...]:
    """Return the hosts on which `arrays` lie; an array that is committed to no device needs none."""
    where = {device: host for host in among for device in (*host.chips, *host.cpus)}
    indices = set()
    for name, array in arrays.items():
        if array.committed:
            for device in array.sharding.device_set:
                if device not in where:
                    raise CheckError(
                        f"{name} lies on {device}, which belongs to no host of this session.",
                        hint=f"Move it first: {name} = jax.device_put({name}, jax.devices()[0]).",
                    )
                indices.add(where[device].index)
    return tuple(host for host in among if host.index in indices)


@dataclass(frozen=True)
class Prepared:
    """Arrays that are ready to go along with a call.

    Attributes:
      channel: To the call's hosts, over the devices that the arrays are on.
      inputs: The arrays on CPU devices.
      wrapped: What those are that had to be wrapped, by place: JAX takes only arrays that are on all of a program's
        devices.
      free: The places of those that were committed to no device, and are not there either.
      weak: The places of those with a weak type, which JAX does not send along.
      sources: The arrays as they were given, by name.
    """

    channel: Channel
    inputs: tuple[jax.Array, ...] = ()
    wrapped: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    free: tuple[int, ...] = ()
    weak: tuple[int, ...] = ()
    sources: Mapping[str, jax.Array] = field(default_factory=dict)


def require_values(arrays: Mapping[str, jax.Array], error: Exception) -> None:
    """After `error`, fail with the names of those of `arrays` that are lost, if any are.

    Raises:
      LostError: Some are; `error` is its cause.
    """
    lost = stored.lost(list(arrays.values()))
    for reason in sorted(set(lost.values())):
        names = [name for name, array in arrays.items() if lost.get(id(array)) == reason]
        raise LostError(f"{each_of(names, reason)}.", hint="Run the cells that make it again.") from error


def prepare(arrays: Mapping[str, jax.Array], chosen: Sequence[Host]) -> Prepared:
    """Move `arrays` to the CPU devices of `chosen`.

    Args:
      arrays: By name; of what is committed to no device every host gets a copy of its own.
      chosen: The hosts of the call.

    Raises:
      CheckError: An array lies on other hosts too, or has a sharding that names no devices.
      LostError: An array is lost.
    """
    try:
        return _prepared(arrays, chosen)
    except RuntimeError as error:
        require_values(arrays, error)
        raise explain(error) from error


def _prepared(arrays: Mapping[str, jax.Array], chosen: Sequence[Host]) -> Prepared:
    import jax

    beside = {chip: cpu for host in chosen for chip, cpu in zip(host.chips, host.cpus, strict=True)}
    beside |= {cpu: cpu for host in chosen for cpu in host.cpus}
    moved: dict[str, jax.Array] = {}
    for name, array in arrays.items():
        if not array.committed:
            continue
        if any(device not in beside for device in array.sharding.device_set):
            raise CheckError(
                f"{name} lies on other hosts than {name_hosts([host.index for host in chosen])} too.",
                hint="Run the cell on all of its hosts, or move the array first with jax.device_put.",
            )
        moved[name] = jax.device_put(array, _mapped(name, array.sharding, beside.__getitem__))
    # The devices of the arrays if they share them, and leave no host out.
    sets = {frozenset(array.sharding.device_set) for array in moved.values()}
    devices: Collection[jax.Device] = [host.cpus[0] for host in chosen]
    if sets:
        shared = next(iter(sets))
        covered = len(sets) == 1 and all(shared & set(host.cpus) for host in chosen)
        devices = shared if covered else [cpu for host in chosen for cpu in host.cpus]
    to = channel(chosen, devices)
    inputs, wrapped = [], {}
    for index, (name, array) in enumerate(arrays.items()):
        here = moved[name] if name in moved else jax.device_put(array, to.everywhere)
        if here.sharding.device_set != set(to.devices):
            here, wrapped[str(index)] = _wrap(here, to)
        inputs.append(here)
    free = tuple(index for index, name in enumerate(arrays) if name not in moved)
    weak = tuple(index for index, array in enumerate(arrays.values()) if shardings.is_weak(array))
    return Prepared(to, tuple(inputs), wrapped, free, weak, arrays)


def _wrap(array: jax.Array, to: Channel) -> tuple[jax.Array, dict[str, Any]]:
    """Return an array on all devices of `to` with the shards of `array` where it has some, and zeros elsewhere.

    Returns:
      That array, and what `array` was: its shape and sharding, and of PRNG keys, which travel as numbers, the
        implementation.
    """
    import jax
    import numpy as np

    implementation = ""
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        implementation = str(jax.random.key_impl(array))
        array = jax.random.key_data(array)
    if isinstance(array.dtype, np.dtypes.StringDType):
        # Nothing computes with strings but Python.
        shards = {
            each.device: jax.device_put(np.asarray(each.data)[None], each.device) for each in array.addressable_shards
        }
    else:
        shards = {each.device: each.data[None] for each in array.addressable_shards}
    shape = next(iter(shards.values())).shape
    rows = [
        shards[device] if device in shards else jax.device_put(np.zeros(shape, array.dtype), device)
        for device in to.devices
    ]
    wrapped = jax.make_array_from_single_device_arrays((len(rows), *shape[1:]), to.by_device, rows)
    written = shardings.write(array.sharding, lambda device: device.id)
    return wrapped, {"shape": array.shape, "sharding": written, "keys": implementation}


def fetch(
    call: str, specs: Mapping[int, Sequence[dict[str, Any]]], chosen: Sequence[Host], *, on_cpu: bool, what: str = ""
) -> dict[str, jax.Array]:
    """Return the arrays that `call` left on its hosts, by name: one program for all that are on the same devices.

    They go to the chips beside their CPU devices, unless `on_cpu`.

    Args:
      specs: What each host says of them, by its index; see :func:`common_specs`.
      what: What the arrays are called together, if hosts do not agree on them.

    Raises:
      ColocatedError: Hosts do not agree.
    """
    agreed = common_specs(specs, chosen, what)
    groups: dict[frozenset[Any], dict[str, Any]] = {}
    for name, spec in agreed.items():
        groups.setdefault(frozenset(spec.sharding.device_set), {})[name] = spec
    fetched: dict[str, jax.Array] = {}
    for devices, group in groups.items():
        on = [host for host in chosen if devices & set(host.cpus)]
        taken = channel(on, devices).take(call, group)
        fetched |= {
            name: shardings.typed(array, weak_type=group[name].weak_type, committed=True)
            for name, array in taken.items()
        }
    return {name: fetched[name] if on_cpu else to_chips(name, fetched[name], chosen) for name in agreed}


def to_chips(name: str, array: jax.Array, chosen: Sequence[Host]) -> jax.Array:
    """Move `array` to the chips beside its CPU devices; an array of strings stays, as chips have none."""
    import jax
    import numpy as np

    if isinstance(array.dtype, np.dtypes.StringDType):
        return array
    beside = {cpu: chip for host in chosen for chip, cpu in zip(host.chips, host.cpus, strict=True)}
    moved: jax.Array = jax.device_put(array, _mapped(name, array.sharding, lambda device: beside.get(device, device)))
    return moved


def on_cpus(sharding: Any, chosen: Sequence[Host]) -> Any:
    """Return `sharding` on the CPU devices beside its chips."""
    beside = {chip: cpu for host in chosen for chip, cpu in zip(host.chips, host.cpus, strict=True)}
    return _mapped("The sharding", sharding, lambda device: beside.get(device, device))


def common_specs(
    specs: Mapping[int, Sequence[dict[str, Any]]], chosen: Sequence[Host], what: str = ""
) -> dict[str, Any]:
    """Combine what every host says of its outputs into one spec for each name.

    Args:
      specs: What `remote/outputs.py` described, by host index.
      chosen: The hosts of the call.
      what: What the arrays are called together; default: each by its name.

    Returns:
      A ``jax.ShapeDtypeStruct`` with its sharding by name.

    Raises:
      ColocatedError: Hosts do not agree; the message says what each has.
    """
    names = {index: [spec["name"] for spec in each] for index, each in specs.items()}
    if any(each != next(iter(names.values())) for each in names.values()):
        listed = "; ".join(f"host {index}: {', '.join(each)}" for index, each in names.items())
        raise ColocatedError(
            f"Outputs hold other arrays on other hosts: {listed}.",
            hint="Give them one structure on every host; names stay on the hosts meanwhile.",
        )
    agreed: dict[str, Any] = {}
    for each in zip(*specs.values(), strict=True):
        name = each[0]["name"]
        if any(spec[key] != each[0][key] for spec in each for key in ("shape", "dtype", "sharding")):
            described: dict[str, list[int]] = {}
            for index, spec in zip(specs, each, strict=True):
                described.setdefault(f"{spec['dtype']}{spec['shape']}", []).append(index)
            listed = "; ".join(f"{what} on {name_hosts(indices)}" for what, indices in described.items())
            raise ColocatedError(
                f"{what or f'Output {name}'} is not the same on all hosts: {listed}.",
                hint="Give it one shape, dtype and sharding on every host; names stay on the hosts meanwhile.",
            )
        agreed[name] = _spec({**each[0], "weak": all(spec["weak"] for spec in each)}, chosen)
        wide = [index for index, spec in zip(specs, each, strict=True) if spec.get("wide")]
        if wide and str(agreed[name].dtype) != each[0]["dtype"]:
            raise ColocatedError(
                f"{what or f'Output {name}'} holds values of {each[0]['dtype']} on {name_hosts(wide)} that "
                f"{agreed[name].dtype} cannot hold, and JAX has no more bits here.",
                hint='Make them smaller there, or call jax.config.update("jax_enable_x64", True) in the notebook; '
                "names stay on the hosts meanwhile.",
            )
    return agreed


def numbers(specs: Mapping[int, Sequence[dict[str, Any]]]) -> dict[str, dict[int, Any]]:
    """Return the outputs that are not arrays because they are numbers which JAX's types cannot hold here.

    Args:
      specs: What `remote/outputs.py` described, by host index.

    Returns:
      The numbers by name, and by host index.
    """
    import jax
    import numpy as np

    by_name: dict[str, dict[int, dict[str, Any]]] = {}
    for index, each in specs.items():
        for spec in each:
            by_name.setdefault(spec["name"], {})[index] = spec
    return {
        name: {index: spec["number"] for index, spec in each.items()}
        for name, each in by_name.items()
        if len(each) == len(specs)
        and all("number" in spec for spec in each.values())
        and any(
            spec["wide"] and jax.dtypes.canonicalize_dtype(np.dtype(spec["dtype"])) != spec["dtype"]
            for spec in each.values()
        )
    }


def _spec(spec: Mapping[str, Any], chosen: Sequence[Host]) -> Any:
    """Return a ``jax.ShapeDtypeStruct`` with its sharding; of local parts, one after the other along the first axis."""
    import jax
    import numpy as np

    dtype: Any
    if spec["keys"]:
        dtype = jax.eval_shape(lambda: jax.random.key(0, impl=spec["keys"])).dtype
    elif spec["dtype"] == "string":
        dtype = np.dtypes.StringDType()
    else:
        dtype = jax.dtypes.canonicalize_dtype(np.dtype(spec["dtype"]))
    if spec["local"]:
        rows, *rest = spec["shape"]
        split = all(rows % len(host.cpus) == 0 for host in chosen) and len({len(host.cpus) for host in chosen}) == 1
        devices = [cpu for host in chosen for cpu in (host.cpus if split else host.cpus[:1])]
        mesh = jax.sharding.Mesh(np.array(devices), ("hosts",))
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("hosts"))
        return jax.ShapeDtypeStruct((rows * len(chosen), *rest), dtype, sharding=sharding, weak_type=spec["weak"])
    try:
        sharding = shardings.read(spec["sharding"], {cpu.id: cpu for host in chosen for cpu in host.cpus})
    except (LookupError, TypeError, ValueError) as error:
        raise ColocatedError(
            f"Where {spec['name']} lies cannot be read here: {type(error).__name__}: {error}",
            hint="Return it from the hosts on which it lies, with a NamedSharding.",
        ) from error
    return jax.ShapeDtypeStruct(tuple(spec["shape"]), dtype, sharding=sharding, weak_type=spec["weak"])


def _mapped(name: str, sharding: Any, to: Callable[[Any], Any]) -> Any:
    """Return `sharding` of an array on the devices that `to` gives for its own."""
    import jax
    import numpy as np

    if isinstance(sharding, jax.sharding.NamedSharding):
        mesh = sharding.mesh
        devices = np.array([to(device) for device in mesh.devices.flat], object).reshape(mesh.devices.shape)
        moved = jax.sharding.Mesh(devices, mesh.axis_names, axis_types=mesh.axis_types)
        return jax.sharding.NamedSharding(moved, sharding.spec)
    if isinstance(sharding, jax.sharding.SingleDeviceSharding):
        return jax.sharding.SingleDeviceSharding(to(next(iter(sharding.device_set))))
    raise CheckError(
        f"{name} has a {type(sharding).__name__}, which cannot be moved to other devices.",
        hint=f"Give it a NamedSharding first: {name} = jax.device_put({name}, jax.NamedSharding(mesh, spec)).",
    )
