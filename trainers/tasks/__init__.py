"""Tasks with verifiable answers: one module per task, all of the interface in `trainers.tasks.interface`."""
