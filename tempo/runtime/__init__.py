"""Running programs: executables, engines, one run and its chunks, and what is told of them."""
