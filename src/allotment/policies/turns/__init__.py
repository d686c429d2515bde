"""When running gangs give way to waiting ones that rank before them."""
