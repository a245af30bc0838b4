"""The JAX backend of Tempo. Importing this package imports no JAX; `tempo_jax.backend` does."""
