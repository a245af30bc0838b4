"""Tempo's polyhedral scheduler: shifts, interleavings and skewed loops, found by isl."""
