"""Mutates audio files, records them, and compares with independent decoders."""
