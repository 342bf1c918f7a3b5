"""The operator: the PathwaysJob API's controller, and the sweeper of dead sessions' proxies, in one program.

It runs as a pod in the cluster, or anywhere with a kubeconfig. It keeps no state: everything that it needs is in the
cluster, so that it can be killed at any time and goes on where it was.

It is written on this package's own informers and not on kopf. Importing kopf 1.45 takes 1.9 seconds and 42 MB on a
machine that imports the whole of this operator in 0.2, and the embedded cluster starts one with each cluster; kopf's
leader election uses a resource of its own (KopfPeering) instead of a Lease.
"""
