"""What trainers and tracker both read: errors, files, process life, stage folders, health rules, code digests."""
