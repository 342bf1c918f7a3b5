"""A kernel beside the chips: a process in the lab's pod, which notebooks of this machine use like a local one.

Four processes::

    JupyterLab, VS Code       kernelspec's process     near end             lab's pod
    +------------------+ ZMQ  +-------------------+    +---------------+    +--------------------------------+
    | front end        |------| waits             |----| listens,      |----| relay -> host -> ipykernel     |
    |                  |      | (`__main__`)      |pipe| one stream    |    |                   -> supervisor|
    +------------------+      +-------------------+    +---------------+    +--------------------------------+
            +---------------------------------------------^ the kernel's five sockets

The front end starts and ends the kernelspec's process as it does with any kernel. That process only waits: what it
stands for is held by the near end, a detached process, which ends the kernel when that process is gone, however it
died. The near end carries the kernel's sockets over one stream to the lab's pod, which outlives a cut
(:mod:`pathways_jupyter.tunnel`), and shows the kernel's sessions to this machine (`mirror`).
"""

EXIT = b"="
"""Begins the near end's line with the exit code; its other lines are for people, but for the next one."""
RETURN = b"<"
"""Begins its line with what a kernel of this machine, which is to take the place of this one, does first."""
