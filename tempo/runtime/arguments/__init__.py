"""What a call is given."""
