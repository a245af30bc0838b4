"""From LoopIR to source code."""
