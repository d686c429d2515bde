"""The workload model that comes with the program, fitted to Microsoft's Philly trace.

`philly.json` is `model_to_json(anonymous(fit(trace)))` of that trace with the text of `ABOUT`;
a test fits it again and finds the same.
"""

from importlib.resources import files

from allotment.sim.generate.model import Model, model_from_json

ABOUT = (
    "Aggregate statistics of 82,247 jobs of the Microsoft Philly traces (CC-BY-4.0), as "
    "reduced in siasosp23/artifacts; September to December 2017. Tenants are renamed. That "
    "reduction has no endings, so no job fails."
)


def default_model() -> Model:
    """Return the model that needs no file."""
    return model_from_json(files("allotment.sim.generate").joinpath("philly.json").read_bytes())
