"""How an accelerator is divided: what the plan counts in, and the locks of a device stand for."""

QUARTERS = 4
"""Parts of one accelerator that runs can hold by themselves."""
