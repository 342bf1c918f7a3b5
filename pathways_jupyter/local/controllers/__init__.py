"""What makes objects happen: Jobs, JobSets, garbage collection, nodes."""
