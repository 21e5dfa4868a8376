"""Event-camera voxel grids made directly from ordinary video, in the data loader: no event stream is stored."""

from thrifty.data.v2v.augment import Augmentation
from thrifty.data.v2v.binning import normalized
from thrifty.data.v2v.camera import PRESETS, EventCamera, EventCameraSampler, FixedThresholds, preset
from thrifty.data.v2v.config import PipelineConfig
from thrifty.data.v2v.dataset import VideoVoxelDataset
from thrifty.data.v2v.events import EVENT, as_events, events_to_voxel, frames_to_events, from_tonic
from thrifty.data.v2v.index import VideoIndex
from thrifty.data.v2v.intensity import log_intensity, log_table, to_grey
from thrifty.data.v2v.loading import EpochSampler, enter_epoch, make_loader
from thrifty.data.v2v.networks import build_model, register_architecture
from thrifty.data.v2v.recipe import Recipe
from thrifty.data.v2v.saving import load_model, save_model
from thrifty.data.v2v.sensor import SensorState
from thrifty.data.v2v.simulator import VideoToVoxel
from thrifty.data.v2v.training import FlowTrainer, ReconstructionTrainer

__all__ = [
    "EVENT",
    "PRESETS",
    "Augmentation",
    "EpochSampler",
    "EventCamera",
    "EventCameraSampler",
    "FixedThresholds",
    "FlowTrainer",
    "PipelineConfig",
    "Recipe",
    "ReconstructionTrainer",
    "SensorState",
    "VideoIndex",
    "VideoToVoxel",
    "VideoVoxelDataset",
    "as_events",
    "build_model",
    "enter_epoch",
    "events_to_voxel",
    "frames_to_events",
    "from_tonic",
    "load_model",
    "log_intensity",
    "log_table",
    "make_loader",
    "normalized",
    "preset",
    "register_architecture",
    "save_model",
    "to_grey",
]
