"""What trainers and tracker share: errors, files, locks, folders of stages, health rules, digests of code."""
