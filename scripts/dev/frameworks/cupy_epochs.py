"""CuPy: the predictions of each of 12 epochs are kept; mended: their mean. What an epoch gathers is no leak."""
from cupycounted import arguments, cupy, step

TRUTH = {"kind": "leak", "also": ["growing"], "at": ["# gathered"], "steps": 120, "bytes_per_step": 1310720, "every": 10,
         "holder": ["epochs"]}

options = arguments()
weights = cupy.random.random((256, 128), dtype=cupy.float32)
epochs = []
for epoch in range(12):
    predictions = []
    for batch in range(10):
        step()
        images = cupy.random.random((256, 256), dtype=cupy.float32)
        predictions.append(images @ weights)
    gathered = cupy.concatenate(predictions)  # gathered
    epochs.append(float(gathered.mean()) if options.fixed else gathered)
    del predictions, gathered
