"""From a schedule to LoopIR: buffers, segments, guard tables, and the items of the driver."""
