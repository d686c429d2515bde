"""Which claimant has least, and so comes next."""
