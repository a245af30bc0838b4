"""Extents that vary, at a cost that goes with them: regions, versions of them, and blocks."""
