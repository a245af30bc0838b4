"""Reverse mode over the graph: gradients are expanded before anything else sees the graph."""

from tempo.autodiff.backward import expand_gradients

__all__ = ["expand_gradients"]
