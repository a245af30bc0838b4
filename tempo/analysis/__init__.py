"""Facts about graphs, found without changing them: demand, dependence, and checks of the user's program."""
