"""The plan: variants times seeds as content-addressed stages, and what happens before the first job."""
