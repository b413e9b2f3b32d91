"""A double of Google Cloud that speaks the real protocols to the real client libraries."""
