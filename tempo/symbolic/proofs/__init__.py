"""Proofs over the integers: case splits, Fourier-Motzkin elimination, intervals, counterexamples."""
