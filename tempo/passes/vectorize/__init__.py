"""Vectorization: which dims become axes, why, and the rewrite."""
