"""Objectives of an editor that removes stereotypes."""
