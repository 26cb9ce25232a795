"""The target engine's side: proposals are validated, mapped to slots and verified in integers."""
