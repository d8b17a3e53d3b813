"""A scripted engine for tests of the control plane. It computes nothing, and everything it says is marked simulated."""
