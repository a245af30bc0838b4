"""What a call gives back, in whole, in part, or as a file."""
