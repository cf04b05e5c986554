"""Weights of tokens within a response."""
