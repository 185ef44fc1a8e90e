"""What the programs with numba share: arrays that are made on the device."""
import numpy as np
from numba import cuda


def upload(rows):
    """Copies so many rows of 1,024 numbers to the device."""
    return cuda.to_device(np.zeros((rows, 1024), np.float32))  # upload
