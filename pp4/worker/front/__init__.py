"""The owner's side of its sockets: connections, requests, batches, and what they are told."""
