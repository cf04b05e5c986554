"""Runs one stage: manages its folder, status, lock and devices, and starts the program if the stage is a command."""
