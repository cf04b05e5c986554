"""Study `demonstrations`: which reward makes a selector choose good in-context demonstrations (docs/studies)."""
