"""Reverse mode over the graph: gradients are expanded before anything else sees the graph."""

from tempo.autodiff.expand import expand_gradients

__all__ = ["expand_gradients"]
