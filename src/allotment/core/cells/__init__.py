"""Cells: which hardware a tenant is owed, and where its gangs go within it (HiveD, OSDI'20)."""
