"""Rewrites of LoopIR."""
