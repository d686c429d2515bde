"""What each claimant of a cluster deserves, as arithmetic: values in, values out."""
