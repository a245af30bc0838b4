"""Index-set splitting: a domain cut where conditions over a dim change."""
