"""Study `gad`, generative adversarial distillation: a student learns from a critic that compares it with a teacher."""
