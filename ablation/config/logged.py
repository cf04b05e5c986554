"""How a final metric stands among evaluation items, for runs that have none: as the one item of a subset of its name.

The judge then knows the noise between seeds alone, and says so. Names only: who reads the database imports no pydantic.
"""

LOGGED = "logged"  # items.protocol
LOGGED_VALUE = "value"  # items.name
