"""Between graph and scheduler: statements and their problem, and what a tree says of places and times."""
