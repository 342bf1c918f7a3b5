"""One command on many hosts: a directory is sent, the command runs everywhere, its output comes back.

::

    command line, kernel (one process)                                  host (Python 3.9, nothing else)
    ----------------------------------                                  -------------------------------
    Selection, Request
    targets, tpuvm, pod_hosts -> Target ...
         |                                                              remote/, sent as text over the connection:
    host_connections -- ssh ------ asyncssh --------------------------> run      does one step after another
         |           +- pod_hosts  exec into a pod ------------------->   +- sync      compares the manifest,
    program      one per host and run: requests and answers               |            unpacks the stream
         |                                                                +- keeper    detached: starts the command,
    hostrun      one per host: sends, starts, follows, reconnects         |            keeps its output and its end
         |  +-- pack (manifest, gzip)  output (log files)                 +- processes finds and ends processes
    run          all hosts: start on all or none, end all  ->  run_events  ->  magics, command line

A run goes on without its connection for a while, and ends with its client. ``cloud`` is Google's API for TPU VMs.
"""
