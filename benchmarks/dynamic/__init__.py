"""Tree-LSTM on batches of random trees, against the same by hand and DyNet: `python -m benchmarks dynamic`.

The other models of `examples/dynamic/`, batched by hand in PyTorch, are here for `dynamic_models`.
"""
