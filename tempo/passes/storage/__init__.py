"""What graphs are given for the sake of buffers, last of all passes."""
