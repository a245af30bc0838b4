"""Recurrences whose order only data gives, a tile of points at a time."""
