"""PathwaysJob: the API for training and batch jobs on Pathways, as plain data.

The definition (schema, rules), the expansion of a job into the JobSet that runs it, and the job's status as it follows
from the JobSet's. Nothing here talks to a cluster, so the controller, the clients and the embedded cluster share it.
"""
