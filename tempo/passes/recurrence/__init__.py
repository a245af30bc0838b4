"""Reductions over ranges that slide or grow, as recurrences."""
