"""The meaning of a program: a demand-driven evaluator, which everything else is checked against."""
