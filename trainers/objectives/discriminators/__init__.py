"""Losses of a critic that tells a teacher from a student, and its scores."""
