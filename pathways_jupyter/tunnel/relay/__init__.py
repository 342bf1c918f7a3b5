"""The two ends of a resumable stream, and the program beside the proxy that keeps one of them.

The modules that `container` lists also run in the relay's container: standard library only, for Python 3.9 and later,
and no dollar sign, because Kubernetes would expand it.
"""
