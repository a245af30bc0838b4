"""Which points of which node are needed: for every size, and exactly at known ones."""
