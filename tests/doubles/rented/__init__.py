"""What the doubles of clouds that rent machines by the hour have in common."""
