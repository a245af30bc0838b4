"""PPO on Gymnasium's CartPole-v1 against other libraries' PPO: `python -m benchmarks ppo_gymnasium`."""
