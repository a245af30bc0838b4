"""Runs that can be stopped, killed and resumed."""
