"""Settings: one frozen dataclass per group, every field with its default, meaning and limits."""

from hnclip_jax.groups.data import DataGroup, EvalGroup
from hnclip_jax.groups.loss import LossGroup
from hnclip_jax.groups.method import MethodGroup
from hnclip_jax.groups.model import ModelGroup
from hnclip_jax.groups.optim import OptimGroup
from hnclip_jax.groups.run import LogGroup, ParallelGroup, TrainGroup

__all__ = [
    "DataGroup",
    "EvalGroup",
    "LogGroup",
    "LossGroup",
    "MethodGroup",
    "ModelGroup",
    "OptimGroup",
    "ParallelGroup",
    "TrainGroup",
]
