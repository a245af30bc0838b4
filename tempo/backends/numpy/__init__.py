"""The embedded backend: generated loops over preallocated NumPy arrays, and the model for third parties."""
