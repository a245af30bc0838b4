"""The scheduler "unfused": an example of a scheduler from outside the project."""
