"""From a checked graph to a plan for all sizes, and from a plan to programs for given sizes."""
