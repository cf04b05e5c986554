"""Generative adversarial distillation: a critic tells teacher from student, and the student learns from its scores."""
