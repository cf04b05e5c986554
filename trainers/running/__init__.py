"""Running a stage: what a trainer sees of it, checkpoints, micro-batches, samples and the digest of its weights."""
