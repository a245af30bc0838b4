"""What running things is expected to cost."""
