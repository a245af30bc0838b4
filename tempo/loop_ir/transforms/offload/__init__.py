"""What loops keep in a pool on the host: who needs which points, and the program that fetches and evicts them."""
