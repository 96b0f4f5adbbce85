"""Transforms: what turns a block of windows into a block of features."""
