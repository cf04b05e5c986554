"""Run one stage: manage its folder, status, lock and devices, and start the program if the stage is a command."""
