"""Cells: the hardware of a guarantee, and where gangs go within it (HiveD, OSDI'20)."""
