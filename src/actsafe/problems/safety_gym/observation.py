"""What a robot senses when it is given no image: three lidars of sixteen bins, then its own sensors."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from actsafe.problems.safety_gym.physics import MjData
from actsafe.problems.safety_gym.robots import Robot

NUM_LIDARS, NUM_BINS = 3, 16
LIDAR_RANGE = 5.0
"""Metres beyond which nothing is seen."""

Numbers, Indices = npt.NDArray[np.float64], npt.NDArray[np.intp]
LidarPoints = tuple[Numbers, Indices]
"""Where the things that a robot's lidars see are in its frame (point, 2), and which lidar sees each."""


def num_features(robot: Robot) -> int:
    """How many numbers a state vector of this robot has."""
    return NUM_LIDARS * NUM_BINS + robot.num_sensed


def state_vectors(robot: Robot, surroundings: Sequence[LidarPoints], sensor_data: Numbers) -> Numbers:
    """What robots of one kind observe (robot, feature): computed together, each row as it is alone."""
    counts = [len(groups) for _, groups in surroundings]
    offsets, groups = (np.concatenate(part) for part in zip(*surroundings, strict=True))
    rows = np.repeat(np.arange(len(counts)), counts)
    return np.concatenate([lidar(offsets, groups, rows, len(counts)), sensed(robot, sensor_data)], axis=1)


def lidar(offsets: Numbers, groups: Indices, rows: Indices, num_rows: int) -> Numbers:
    """Readings (row, lidar x bin) of points at `offsets` (point, 2) in the frame of the robot of their row.

    A point's group is its lidar.

    Bin k holds directions from k to k + 1 sixteenths of a turn, counter-clockwise from ahead. A point reads as its
    closeness 1 - d / 5 m. A fraction of it leaks into the two bins beside its own: alpha into the next, 1 - alpha into
    the one before, where alpha is how far through its bin it lies. A bin shows the largest of its readings.
    """
    x, y = offsets[:, 0], offsets[:, 1]
    closeness = np.maximum(0.0, LIDAR_RANGE - np.sqrt(x * x + y * y)) / LIDAR_RANGE
    turn = np.arctan2(y, x) * (NUM_BINS / (2.0 * np.pi)) % NUM_BINS
    whole = np.floor(turn)
    alpha = turn - whole
    bins = whole.astype(np.intp)
    first = (rows * NUM_LIDARS + groups) * NUM_BINS
    readings = np.zeros(num_rows * NUM_LIDARS * NUM_BINS)
    np.maximum.at(readings, first + bins % NUM_BINS, closeness)
    np.maximum.at(readings, first + (bins + 1) % NUM_BINS, alpha * closeness)
    np.maximum.at(readings, first + (bins - 1) % NUM_BINS, (1.0 - alpha) * closeness)
    return readings.reshape(num_rows, -1)


def offsets_from(data: MjData, body: int, others: Indices) -> Numbers:
    """Where the centres of other bodies are in the frame of `body`, seen along its own vertical: (other, 2)."""
    return ((data.xpos[others] - data.xpos[body]) @ data.xmat[body].reshape(3, 3))[:, :2]


def sensed(robot: Robot, sensor_data: Numbers) -> Numbers:
    """In rows: accelerometer, velocimeter, gyro, magnetometer; Doggo adds touch, hinge velocities, sines, cosines."""
    split = sensor_data.shape[1] - robot.num_hinges
    angles = sensor_data[:, split:]
    pairs = np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(len(angles), -1)
    return np.concatenate([sensor_data[:, :split], pairs], axis=1)
