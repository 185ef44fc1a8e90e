"""CuPy: the residual of every iteration of a solver is kept for a plot; mended: its norm."""
from cupycounted import arguments, cupy, step

TRUTH = {"kind": "leak", "at": ["# residual"], "steps": 120, "bytes_per_step": 1048576, "holder": ["residuals"]}

options = arguments()
matrix = cupy.random.random((512, 512), dtype=cupy.float32) / 512
state = cupy.ones((512, 512), cupy.float32)
residuals = []
for number in range(120):
    step()
    new = matrix @ state
    residual = cupy.subtract(new, state)  # residual
    residuals.append(float(cupy.abs(residual).sum()) if options.fixed else residual)
    state = new / cupy.abs(new).max()
    del residual, new
