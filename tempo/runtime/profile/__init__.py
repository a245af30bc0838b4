"""`run.profile`: which of the user's lines take the time, and a trace of them.

sampler     interrupts the thread that runs, and shows where it is
looks       when the backend's own profiler is on, so that it costs little
recorder    what runs hand to both, and what is remembered of it
lines       from that to seconds by line: `Profile`, and its table
trace       the file, for Perfetto and Chrome
recording   the block in which runs are profiled
"""
