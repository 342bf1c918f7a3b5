"""Traces of TPU chips: read their files from the bucket, and sum them up for a notebook.

A trace is taken by the session (:mod:`pathways_jupyter.session.kernel.trace`); this reads what the hosts wrote, and
knows nothing of sessions.
"""
