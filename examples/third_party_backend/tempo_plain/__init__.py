"""The backend "plain": an example of a backend from outside the project."""
