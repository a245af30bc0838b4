"""What is known of a LoopIR program: what lives where and when, and what passes from iteration to iteration."""
