"""Programs that use pp4, and what they made."""
