"""Importance ratios, and what is done to them before the loss."""
