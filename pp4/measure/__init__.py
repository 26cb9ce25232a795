"""OFF against ON in two restored HOLDs: what is measured, how, and what it says."""
