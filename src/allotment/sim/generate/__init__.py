"""Synthetic workloads: drawn by chance from a model that is fitted to a real trace."""

from allotment.sim.generate.comparing import compare
from allotment.sim.generate.default import default_model
from allotment.sim.generate.drawing import drawn, generate, planned
from allotment.sim.generate.fit_report import FitReport, FitRow, Verdict
from allotment.sim.generate.fitting import anonymous, fit
from allotment.sim.generate.loading import Reached, SubmitPeriod
from allotment.sim.generate.model import BadModel, Model, model_from_json, model_to_json
from allotment.sim.generate.writing import Written, write_csv

__all__ = [
    "BadModel",
    "FitReport",
    "FitRow",
    "Model",
    "Reached",
    "SubmitPeriod",
    "Verdict",
    "Written",
    "anonymous",
    "compare",
    "default_model",
    "drawn",
    "fit",
    "generate",
    "model_from_json",
    "model_to_json",
    "planned",
    "write_csv",
]
