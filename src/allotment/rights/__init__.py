"""Files with the rights of the user they are used for, by whoever may use any.

A service of the superuser touches paths that its users name, and change while it looks. So
each is resolved once, by the kernel, with the user's own rights, and from then on only the
descriptor counts (docs/adr/0012). Nothing is imported here, and of ours nothing anywhere in
this package: the launcher is forked thousands of times.
"""
