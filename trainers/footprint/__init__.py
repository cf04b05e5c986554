"""What models and their training hold in memory, without torch. No stage imports it, so it counts for no key."""
