"""Rewrites of the graph: the manager, the pipeline that lists them in order, and a package for each concern."""
