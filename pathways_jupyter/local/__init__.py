"""A cluster on your laptop: a Kubernetes API, pods as processes, and a Pathways for CPUs.

::

    actions, shells                  kubectl, kubernetes clients, the product itself
          | up, find, down                              | HTTPS and a kubeconfig
          v                                             v
    +-----------+ starts, asks  +--------- daemon.py, running.py: one process ---------+
    | cluster.py|-------------->|  apiserver/     REST, watches, exec, port-forward;   |
    +-----------+  control.py   |       |         one store of objects                 |
                                |       +---> controllers/  Jobs, JobSets, nodes, ...  |
                                |       +---> node/         the kubelet of every node  |
                                +-----------------------+------------------------------+
                                                        | requests to its fork servers
                                                        v
                                pods, each a process: commands, or pathways/ (resource
                                manager, worker, proxy, sidecar) under their images' names

Start at :mod:`~pathways_jupyter.local.cluster`, which is light to import, and all that other rooms use. The daemon
(:mod:`~pathways_jupyter.local.daemon`) assembles the rest in :mod:`~pathways_jupyter.local.running`. Then read

- ``apiserver``: the Kubernetes API, as kubectl and the Kubernetes clients use it;
- ``controllers``: what turns a JobSet into Jobs, those into pods, and gives the pods nodes;
- ``node``: what runs a pod's containers as processes of this machine;
- ``pathways``: the programs in these pods, which speak JAX's IFRT proxy protocol and compute on CPUs.
"""
