"""Pipelines: runs of a dim along which something is carried, each on a device of its own."""
