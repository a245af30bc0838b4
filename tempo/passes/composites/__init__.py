"""Composite operators: made for the backends that take them whole, taken apart for the others."""
