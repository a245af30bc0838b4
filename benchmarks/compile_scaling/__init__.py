"""What compiling takes as programs grow."""
