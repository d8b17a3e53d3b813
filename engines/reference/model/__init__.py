"""Target and drafter: checkpoints, and their forward passes."""
