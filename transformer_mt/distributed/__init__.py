"""Ranks, devices, collectives and torchrun; no other package uses torch.distributed.

A single process is the trivial case: each collective returns its input.
"""
