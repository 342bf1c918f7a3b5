"""``pathways-jupyter demo``: the whole story in a minute, each step timed and checked."""
