"""Runs one stage: its folder, status, lock, devices and, for a command, its program."""
