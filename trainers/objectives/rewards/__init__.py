"""Rewards by length and by token."""
