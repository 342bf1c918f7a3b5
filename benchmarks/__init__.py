"""Measurements of this package beside its peers, in one run on one machine."""
