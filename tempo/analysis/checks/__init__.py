"""What a program may do wrong, looked for when it is compiled and when sizes are known."""
