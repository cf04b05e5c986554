"""What is measured beside the losses."""
