"""Requests about programs: compile, run, and ask about them."""

from __future__ import annotations

import threading
from typing import Any

from pathways_jupyter.local.pathways.ifrt import messages, plugins, promises, statuses
from pathways_jupyter.local.pathways.ifrt.client_session import Handler, IfrtSession
from pathways_jupyter.local.pathways.ifrt.colocated_python import PythonExecutable
from pathways_jupyter.local.pathways.ifrt.executables import OpaqueExecutable, XlaExecutable
from pathways_jupyter.local.pathways.ifrt.promises import Promise
from pathways_jupyter.local.pathways.ifrt.stablehlo import CALLBACKS_REFUSED

_XLA_PROGRAMS = frozenset({"xla::ifrt::XlaProgram", "xla::ifrt::HloProgram"})
_PYTHON_PROGRAM = "xla::ifrt::CustomCallProgram"


def compile_program(session: IfrtSession, message: Any, body: Any) -> Promise:
    """Compile on a thread of its own; the answer comes when it is done."""
    if message.host_callbacks:
        raise statuses.unimplemented(CALLBACKS_REFUSED)
    done = Promise()

    def compile_and_describe() -> None:
        machine, program = session.machine, message.program
        executable: XlaExecutable | OpaqueExecutable
        try:
            if program.type_name in _XLA_PROGRAMS:
                executable = XlaExecutable(program.data, message.compile_options.data, machine)
            elif program.type_name == _PYTHON_PROGRAM:
                executable = PythonExecutable(program.data, machine, session.order)
            elif program.type_name == plugins.PROGRAM_TYPE:
                executable = plugins.read(program.data, machine)
            else:
                raise statuses.unimplemented(f"programs of type {program.type_name} are not supported")
        except Exception as error:
            done.fail(statuses.of(error))
            return
        body.loaded_executable_handle = session.new_handle()
        session.executables[body.loaded_executable_handle] = executable
        body.name = executable.name
        body.num_devices = len(executable.device_ids)
        body.device_ids.extend(executable.device_ids)
        body.addressable_device_ids.extend(executable.device_ids)
        if executable.fingerprint:
            body.fingerprint_value = executable.fingerprint
        body.ready_future_handle = session.new_handle()
        session.futures[body.ready_future_handle] = promises.settled(None)
        done.settle(None)

    threading.Thread(target=compile_and_describe, name="compile", daemon=True).start()
    return done


def describe(session: IfrtSession, message: Any, body: Any) -> None:
    """Describe shardings, layouts and memory."""
    session.executables[message.loaded_executable_handle].describe(body)


def execute(session: IfrtSession, message: Any, body: Any) -> None:
    """Start a program; its results carry any error."""
    executable = session.executables[message.loaded_executable_handle]
    inputs = [session.arrays[handle] for handle in message.args_handles]
    specs = executable.outputs(inputs)
    handles, outputs = session.bind_new(message.result_array_handle, specs)
    started = executable.execute(inputs, outputs, message.execute_options)
    if message.execute_options.fill_status:
        body.status_handle = message.result_status_handle or session.new_handle()
        over = [array.ready(session.machine.queues.of) for array in outputs]
        session.futures[body.status_handle] = promises.all_of([started, *over])
    if not message.result_array_handle:
        for handle, spec in zip(handles, specs, strict=True):
            output = body.outputs.add(array_handle=handle)
            output.dtype.kind = spec.kind
            output.shape.SetInParent()
            output.shape.dims.extend(spec.shape)
            output.sharding.CopyFrom(spec.sharding.proto)


def fetch_result(session: IfrtSession, message: Any, body: Any) -> Promise:
    """Wait until an execution is over."""
    del body
    return session.futures.take(message.result_status_handle)


def check_future(session: IfrtSession, message: Any, body: Any) -> Promise:
    """Wait for something that has a handle; once."""
    del body
    return session.futures.take(message.future_handle)


def cost_analysis(session: IfrtSession, message: Any, body: Any) -> None:
    """Return XLA's estimates."""
    estimates = session.executables[message.loaded_executable_handle].cost_analysis()
    messages.write_attributes(body.attributes, estimates)


def program_text(session: IfrtSession, message: Any, body: Any) -> None:
    """Return the optimized program."""
    body.human_readable_program_text = session.executables[message.loaded_executable_handle].text()


def destruct(session: IfrtSession, message: Any, body: Any) -> None:
    """Free an executable and its handle."""
    session.executables.take(message.loaded_executable_handle).release()


def default_layout(session: IfrtSession, message: Any, body: Any) -> None:
    """Return the default memory layout of arrays."""
    body.serialized_pjrt_layout = session.machine.devices.default_layout(message.dtype.kind, tuple(message.dims))


HANDLERS: dict[str, Handler] = {
    "compile": compile_program,
    "loaded_executable_metadata": describe,
    "loaded_executable_execute": execute,
    "loaded_executable_fetch_execute_result": fetch_result,
    "check_future": check_future,
    "loaded_executable_cost_analysis": cost_analysis,
    "loaded_executable_human_readable_program_text": program_text,
    "loaded_executable_destruct": destruct,
    "get_default_layout": default_layout,
}
