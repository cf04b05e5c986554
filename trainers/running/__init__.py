"""Services for trainers: their stage, checkpoints, micro-batches, samples and digests of weights."""
