"""diffusers: all latents of every sampling are kept to show the process; mended: those of the last."""
import torch
from counted import arguments, step
from diffusers import DDIMScheduler, UNet2DModel

TRUTH = {"kind": "leak", "at": ["# latents"], "steps": 40, "bytes_per_step": 20480, "holder": ["frames"]}


@torch.no_grad()
def sample(unet, scheduler, frames):
    latents = torch.randn(1, 4, 16, 16, device="cuda")
    for moment in scheduler.timesteps:
        noise = unet(latents, moment).sample
        latents = scheduler.step(noise, moment, latents).prev_sample  # latents
        frames.append(latents)


def main(fixed):
    unet = UNet2DModel(sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(8, 8),
                       norm_num_groups=4, down_block_types=("DownBlock2D", "DownBlock2D"),
                       up_block_types=("UpBlock2D", "UpBlock2D")).cuda()
    scheduler = DDIMScheduler(num_train_timesteps=50)
    scheduler.set_timesteps(5)
    frames = []
    for _ in range(40):
        step()
        if fixed:
            frames.clear()
        sample(unet, scheduler, frames)


main(arguments().fixed)
