"""Who yields first when borrowed resources are wanted back."""
