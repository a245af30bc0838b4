"""Composite operators: entries of the operator table that say what they are made of."""
