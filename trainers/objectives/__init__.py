"""Pure tensor functions: losses, rewards, advantages. They import torch only."""
