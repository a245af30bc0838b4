"""Tempo's default scheduler: levels, shifting by constants and greedy loop fusion."""
