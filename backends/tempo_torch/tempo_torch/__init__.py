"""Tempo's PyTorch backend. Importing this package imports no torch; `tempo_torch.backend` does."""
