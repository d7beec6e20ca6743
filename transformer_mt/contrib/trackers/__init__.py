"""Experiment trackers whose packages are not needed otherwise."""

PROJECT = "transformer_mt"
"""Project or experiment of all runs, unless a tracker's own environment variable names another."""
