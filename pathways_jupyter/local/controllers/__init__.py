"""Controllers of the embedded cluster: Jobs, JobSets, garbage collection, nodes, scheduling."""
