"""Who depends on whom, and what order that leaves: levels, distances, cycles, the order of host calls."""
