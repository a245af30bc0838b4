"""The symbolic dependence graph: its nodes and edges, builder, text, specification and operators."""
