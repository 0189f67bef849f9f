"""The specification of an experiment: its question, system, load and factors, and the gates that trials must pass.

Step 1 of an experiment. Knows nothing of processes or results.
"""

from waylab.spec.calibration import CALIBRATION, calibration_spec
from waylab.spec.design import Labels, configurations, matches
from waylab.spec.factors import Factor, Level, apply_level, resolve_key
from waylab.spec.hosts import PROFILES, Assignment, HostSettings, TestbedSettings
from waylab.spec.quantities import mean_of_variate_s, size_bytes
from waylab.spec.read import parse_spec, read_spec, read_spec_text, spec_as_dict, spec_of
from waylab.spec.scales import FULL, QUICK, SCALES, at_scale
from waylab.spec.schema import (
    MACHINE_SPEED,
    Compare,
    Design,
    Gates,
    PredictionSplit,
    ReportOptions,
    Spec,
    StoppingSettings,
)
from waylab.spec.settings import Backends, Database, Load, Messages, Proxy
from waylab.spec.study import Study, read_study, toml_text, with_changes, write_specs
from waylab.spec.systems import System, SystemUnderTest
from waylab.spec.time_scale import at_time_scale
from waylab.spec.variates import mean_size_bytes, mean_time_s

__all__ = [
    "CALIBRATION",
    "FULL",
    "MACHINE_SPEED",
    "PROFILES",
    "QUICK",
    "SCALES",
    "Assignment",
    "Backends",
    "Compare",
    "Database",
    "Design",
    "Factor",
    "Gates",
    "HostSettings",
    "Labels",
    "Level",
    "Load",
    "Messages",
    "PredictionSplit",
    "Proxy",
    "ReportOptions",
    "Spec",
    "StoppingSettings",
    "Study",
    "System",
    "SystemUnderTest",
    "TestbedSettings",
    "apply_level",
    "at_scale",
    "at_time_scale",
    "calibration_spec",
    "configurations",
    "matches",
    "mean_of_variate_s",
    "mean_size_bytes",
    "mean_time_s",
    "parse_spec",
    "read_spec",
    "read_spec_text",
    "read_study",
    "resolve_key",
    "size_bytes",
    "spec_as_dict",
    "spec_of",
    "toml_text",
    "with_changes",
    "write_specs",
]
