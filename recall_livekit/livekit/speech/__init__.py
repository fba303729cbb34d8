"""What each side really said: turns, words under way, and what became of them."""
