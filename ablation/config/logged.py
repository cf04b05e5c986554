"""A final metric as an evaluation item, for runs without items: the only item of a subset of its name.

The judge then knows the noise between seeds alone, and says so. Names only: who reads the database imports no pydantic.
"""

LOGGED = "logged"  # items.protocol
LOGGED_VALUE = "value"  # items.name
