"""Ranks, devices, launching and collectives; no other package uses torch.distributed.

A single process is the trivial case: each collective returns its input.
"""
