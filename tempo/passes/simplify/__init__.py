"""Canonical form and algebra: the same value said with less."""
