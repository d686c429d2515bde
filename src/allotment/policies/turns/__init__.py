"""When running gangs are preempted for waiting ones that rank before them."""
