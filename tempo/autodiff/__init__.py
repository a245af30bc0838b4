"""Reverse mode over the graph: gradients are expanded before anything else sees the graph."""

from tempo.autodiff.backward import expand_gradients
from tempo.autodiff.joint import Joint, joint_graph
from tempo.autodiff.partition import Partition, partition, pruned

__all__ = ["Joint", "Partition", "expand_gradients", "joint_graph", "partition", "pruned"]
