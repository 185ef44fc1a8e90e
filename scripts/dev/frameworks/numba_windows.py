"""numba: a tracker keeps the frames of every tenth step for a film, made by a helper; mended: the newest five."""
import collections

import numbaparts
from counting import arguments, step

TRUTH = {"kind": "leak", "also": ["growing"], "at": ["numbaparts.py # upload"], "steps": 200, "bytes_per_step": 262144,
         "every": 10, "holder": ["film"]}


class Tracker:
    def __init__(self, fixed):
        self.film = collections.deque(maxlen=5 if fixed else None)

    def see(self, number):
        frame = numbaparts.upload(64)
        frame.copy_to_host()
        if number % 10 == 0:
            self.film.append(frame)


options = arguments()
tracker = Tracker(options.fixed)
for number in range(200):
    tracker.see(number)
    step(262144 * len(tracker.film))
