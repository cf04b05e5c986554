"""Advantages of responses and tokens."""
