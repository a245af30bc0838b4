"""From a graph that passes have left to LoopIR: scheduling, storage, construction."""
