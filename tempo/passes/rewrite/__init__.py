"""Rewriting a graph: the driver of sweeps, rules as patterns, and the removal of what is dead."""
