"""As `counting`, for PyTorch: its own count, on the device and in pinned memory. Knows nothing of leaktrace."""
import gc
import logging
import os
import warnings

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TRANSFORMERS_VERBOSITY="error")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.simplefilter("ignore")

import counting
import torch


def step():
    """Call it once per batch, at any place of the loop."""
    pinned = torch.cuda.host_memory_stats().get("allocated_bytes.current", 0)
    counting.step(torch.cuda.memory_allocated() + pinned)


def arguments():
    torch.manual_seed(0)
    return counting.arguments()
