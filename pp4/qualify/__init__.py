"""The coordinator's side of qualification: plan, gates, judgement."""
