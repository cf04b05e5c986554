"""Shared by trainers and tracker: errors, files, process life, stage folders, health rules, code digests."""
