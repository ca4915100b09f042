"""Where the time went: traces made from events, and what they look like."""
