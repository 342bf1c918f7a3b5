"""One command on many hosts: content sent once, logs brought back, nothing left running.

``remote/`` runs on the hosts, which need only Python's standard library; everything else runs here.
"""
