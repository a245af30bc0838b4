"""LoopIR, the second intermediate representation: order, storage and shapes as decided."""
