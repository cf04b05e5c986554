"""Tasks with verifiable answers: one module per task, its settings in `trainers.tasks.settings`, no list of them."""

TASKS = "trainers.tasks"  # a task's settings name its module in here
