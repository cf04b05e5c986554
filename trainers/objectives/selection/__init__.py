"""Rewards, advantages and losses of policies that choose demonstrations."""
