"""Models over time against the same models written by hand: `python -m benchmarks models`."""
