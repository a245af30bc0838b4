"""Nodes that a program is given to be watched or guarded by."""
