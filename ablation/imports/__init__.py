"""Runs that other programs logged: readers of their formats, and the shards that become rows of the database."""
