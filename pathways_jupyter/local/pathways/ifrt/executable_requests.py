"""Requests about programs: compile, run, and ask about them."""

from __future__ import annotations

import threading
from typing import Any

from pathways_jupyter.local.pathways.ifrt import messages, promises, statuses
from pathways_jupyter.local.pathways.ifrt.client_session import Answer, Future, Handler, Session
from pathways_jupyter.local.pathways.ifrt.colocated import PythonExecutable
from pathways_jupyter.local.pathways.ifrt.executables import XlaExecutable
from pathways_jupyter.local.pathways.ifrt.stablehlo import CALLBACKS_REFUSED

_XLA_PROGRAMS = frozenset({"xla::ifrt::XlaProgram", "xla::ifrt::HloProgram"})
_PYTHON_PROGRAM = "xla::ifrt::CustomCallProgram"


def compile_program(session: Session, message: Any, answer: Answer) -> None:
    """Compiles on a thread of its own; the answer comes when it is done."""
    if message.host_callbacks:
        raise statuses.unimplemented(CALLBACKS_REFUSED)

    def compile_and_answer() -> None:
        machine, program = session.machine, message.program
        executable: XlaExecutable | PythonExecutable
        try:
            if program.type_name in _XLA_PROGRAMS:
                executable = XlaExecutable(
                    program.data, message.compile_options.data, machine.devices, machine.shardings, machine.queues
                )
            elif program.type_name == _PYTHON_PROGRAM:
                executable = PythonExecutable(
                    program.data, machine.sidecars, session.order, machine.devices, machine.shardings
                )
            else:
                raise statuses.unimplemented(f"programs of type {program.type_name} are not supported")
        except Exception as error:
            answer.fail(statuses.of(error))
            return
        body = answer.body
        body.loaded_executable_handle = session.new_handle()
        session.executables[body.loaded_executable_handle] = executable
        body.name = executable.name
        body.num_devices = len(executable.device_ids)
        body.device_ids.extend(executable.device_ids)
        body.addressable_device_ids.extend(executable.device_ids)
        if executable.fingerprint:
            body.fingerprint_value = executable.fingerprint
        body.ready_future_handle = session.new_handle()
        session.futures[body.ready_future_handle] = Future(promises.settled(None))
        answer.send()

    threading.Thread(target=compile_and_answer, name="compile", daemon=True).start()


def describe(session: Session, message: Any, answer: Answer) -> None:
    """Shardings, layouts, memory."""
    session.executables[message.loaded_executable_handle].describe(answer.body)
    answer.send()


def execute(session: Session, message: Any, answer: Answer) -> None:
    """Start a program; its results carry any error."""
    executable = session.executables[message.loaded_executable_handle]
    inputs = [session.array(handle) for handle in message.args_handles]
    specs = executable.outputs(inputs, message.device_ids)
    handles, outputs = session.bind_new(message.result_array_handle, specs)
    started = executable.execute(inputs, outputs, message.execute_options)
    if message.execute_options.fill_status:
        answer.body.status_handle = message.result_status_handle or session.new_handle()
        over = [array.ready(session.machine.queues.of) for array in outputs]
        session.futures[answer.body.status_handle] = Future(promises.all_of([started, *over]))
    if not message.result_array_handle:
        for handle, spec in zip(handles, specs, strict=True):
            output = answer.body.outputs.add(array_handle=handle)
            output.dtype.kind = spec.kind
            output.shape.SetInParent()
            output.shape.dims.extend(spec.shape)
            output.sharding.CopyFrom(spec.sharding.proto)
    answer.send()


def fetch_result(session: Session, message: Any, answer: Answer) -> None:
    """Waits until an execution is over."""
    answer.send_when(session.futures.pop(message.result_status_handle).promise)


def check_future(session: Session, message: Any, answer: Answer) -> None:
    """Waits for something that has a handle; once."""
    future = session.futures.pop(message.future_handle)
    answer.send_when(future.promise, uncounted=future.uncounted)


def cost_analysis(session: Session, message: Any, answer: Answer) -> None:
    """XLA's estimates."""
    estimates = session.executables[message.loaded_executable_handle].cost_analysis()
    messages.write_attributes(answer.body.attributes, estimates)
    answer.send()


def program_text(session: Session, message: Any, answer: Answer) -> None:
    """The optimized program."""
    answer.body.human_readable_program_text = session.executables[message.loaded_executable_handle].text()
    answer.send()


def destruct(session: Session, message: Any, answer: Answer) -> None:
    """Frees an executable and its handle."""
    session.executables.pop(message.loaded_executable_handle).release()
    answer.send()


def default_layout(session: Session, message: Any, answer: Answer) -> None:
    """The default memory layout of arrays."""
    body = answer.body
    body.serialized_pjrt_layout = session.machine.devices.default_layout(message.dtype.kind, tuple(message.dims))
    answer.send()


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
