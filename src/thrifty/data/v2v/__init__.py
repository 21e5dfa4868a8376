"""Event-camera voxel grids made directly from ordinary video, in the data loader: no event stream is stored."""

from thrifty.data.v2v.augment import Augmentation
from thrifty.data.v2v.binning import normalized
from thrifty.data.v2v.camera import PRESETS, EventCamera, EventCameraSampler, FixedThresholds, preset
from thrifty.data.v2v.dataset import VideoVoxelDataset
from thrifty.data.v2v.events import EVENT, as_events, events_to_voxel, frames_to_events, from_tonic
from thrifty.data.v2v.index import VideoIndex
from thrifty.data.v2v.intensity import log_intensity, log_table, to_grey
from thrifty.data.v2v.loading import EpochSampler, make_loader
from thrifty.data.v2v.sensor import SensorState
from thrifty.data.v2v.simulator import VideoToVoxel

__all__ = [
    "EVENT",
    "PRESETS",
    "Augmentation",
    "EpochSampler",
    "EventCamera",
    "EventCameraSampler",
    "FixedThresholds",
    "SensorState",
    "VideoIndex",
    "VideoToVoxel",
    "VideoVoxelDataset",
    "as_events",
    "events_to_voxel",
    "frames_to_events",
    "from_tonic",
    "log_intensity",
    "log_table",
    "make_loader",
    "normalized",
    "preset",
    "to_grey",
]
