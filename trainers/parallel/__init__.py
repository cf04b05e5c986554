"""One stage on several devices: a process for each, weights sharded by FSDP2, started by torchrun's launcher."""
