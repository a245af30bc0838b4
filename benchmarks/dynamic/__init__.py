"""Tree-LSTM on batches of random trees, against the same by hand and DyNet: `python -m benchmarks dynamic`."""
