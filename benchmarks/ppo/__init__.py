"""An iteration of PPO against the same written by hand: `python -m benchmarks ppo`."""
