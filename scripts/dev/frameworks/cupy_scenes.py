"""CuPy: a renderer is made for each of 30 scenes, and a registry keeps it; mended: it is taken out."""
from cupycounted import arguments, cupy, step

TRUTH = {"kind": "leak", "at": ["# volume", "# table"], "steps": 30, "bytes_per_step": 2113536, "holder": ["registry"]}

registry = {}


class Renderer:
    def __init__(self, scene):
        self.volume = cupy.zeros((64, 64, 128), cupy.float32)  # volume
        self.table = cupy.full(4096, scene, cupy.float32)  # table
        registry[scene] = self

    def render(self):
        return float((self.volume + self.table[0]).sum())

    def close(self, fixed):
        if fixed:
            registry.pop(int(self.table[0]))


options = arguments()
for scene in range(30):
    step()
    renderer = Renderer(scene)
    renderer.render()
    renderer.close(options.fixed)
    del renderer
