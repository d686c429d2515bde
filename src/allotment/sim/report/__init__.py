"""The HTML report of simulations: one self-contained file, made from `Run` values."""

from allotment.sim.report.page import render as render
