"""``pathways-jupyter demo``: the main features in a minute, each step timed and checked."""
