"""What users write between brackets: expressions over dims, reads in time, reads in space, reads at data."""
