"""The suite that every backend and scheduler is held to, ours and those of others: `-p tempo.conformance.plugin`."""
