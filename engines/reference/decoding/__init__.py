"""Batched decoding: autoregressive, linear DFlash and DDTree, over KV caches."""
