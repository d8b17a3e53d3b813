"""The isolated environments that engines run in: what they hold, whether they are here, and making them."""

from engines.envs.catalogue import ENVIRONMENTS, Environment, environment
from engines.envs.installation import State, install, interpreter, state
from engines.envs.pip import InstallError
from engines.envs.suitability import obstacle

__all__ = [
    "ENVIRONMENTS",
    "Environment",
    "InstallError",
    "State",
    "environment",
    "install",
    "interpreter",
    "obstacle",
    "state",
]
