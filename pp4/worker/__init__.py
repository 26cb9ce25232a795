"""Two rank processes under one owner: what runs on the receiving host."""
