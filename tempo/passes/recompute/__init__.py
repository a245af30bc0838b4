"""Recomputation: what a later loop needs of an earlier one is computed again, strip by strip."""
