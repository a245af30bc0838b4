"""Which buffers there are, how large, and who shares them."""
