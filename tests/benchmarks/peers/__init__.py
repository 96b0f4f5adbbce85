"""What other libraries do instead of each transform; see ``transforms``."""
