"""Environments: packages resolved once, built once, and read by many.

requirements.py   what a requirement may be; pure
lasting.py        what to build again would not mend
uv.py             runs the resolver and the installer, as a user of its own
target.py         for which Python, of the machine or of an image; pure
for_image.py      turns what uv made to the Python of an image
pythons.py        Pythons that the machine does not have, from a mirror
sizes.py          how much would be fetched, as the index says; pure
measuring.py      how large a folder is while it is being filled
store.py          where environments lie
environments.py   the use cases
view.py           what people see
"""
