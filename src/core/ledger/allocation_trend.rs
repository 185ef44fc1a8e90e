//! How much a site allocates in a step, and whether that becomes more. It must not know what a site holds.

use serde::{Deserialize, Serialize};

/// Of the steps in which a site allocates this one and those before are early.
const EARLY: u32 = 5;
/// What is allocated in a step grows if it is so many times what it was, and was less than in the step before in at most this
/// share of the steps in which it was more. It stays if it is not even so many times that.
const GROWN: f64 = 1.5;
const SELDOM_SMALLER: f64 = 0.1;
const STAYED: f64 = 1.1;
/// PyTorch's allocator leaves a block of more than 1 MiB what it was found in, if that is up to 1 MiB more: of more than that, a
/// step has clearly allocated less only if it is less than this share. Where it was less, but not clearly, it must be more so many
/// times at least.
const ROUNDED: u64 = 1 << 20;
const SHARE_OF_ROUNDED: u64 = 2;
const OFTEN_LARGER: u32 = 16;

/// How what a site allocates in a step has changed over the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trend {
    Grows,
    Stays,
    Varies,
}

/// How much a site allocates in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Made {
    /// Bytes since the last boundary.
    now: u64,
    /// Bytes in one of the first steps that allocated, and in the latest, or in the one since which none was clearly smaller.
    early: u64,
    latest: u64,
    /// The later ones that allocated more than that, and less.
    larger: u32,
    smaller: u32,
    /// And those that allocated less, but not clearly.
    hardly_smaller: u32,
    /// Steps in which nothing but scalars was allocated before.
    begun: u32,
}

impl Made {
    #[inline]
    pub fn add(&mut self, bytes: u64) {
        self.now = self.now.wrapping_add(bytes);
    }

    /// Takes off what was added and turned out to be none of it.
    pub fn take_off(&mut self, bytes: u64) {
        self.now = self.now.saturating_sub(bytes);
    }

    #[inline]
    pub fn begins_step(&mut self) {
        self.begun = self.begun.wrapping_add(1);
    }

    pub fn steps_begun(&self) -> u32 {
        self.begun
    }

    /// Takes in that a step ended. `births`: those in which the site has allocated, with it.
    #[inline]
    pub fn step_ends(&mut self, births: u32) {
        let now = std::mem::take(&mut self.now);
        if now == 0 {
            return;
        }
        let is_rounded = now < self.latest && now > ROUNDED && now >= self.latest / SHARE_OF_ROUNDED;
        if births <= EARLY {
            self.early = now;
        } else if !is_rounded {
            self.larger = self.larger.wrapping_add(u32::from(now > self.latest));
            self.smaller = self.smaller.wrapping_add(u32::from(now < self.latest));
        } else {
            self.hardly_smaller = self.hardly_smaller.wrapping_add(1);
            return;
        }
        self.latest = now;
    }

    pub fn latest(&self) -> u64 {
        self.latest
    }

    /// Returns what of the latest step's bytes the first steps did not allocate, as a share.
    pub fn grown(&self) -> f64 {
        1.0 - self.early as f64 / self.latest.max(1) as f64
    }

    pub fn trend(&self) -> Trend {
        let times = self.latest as f64 / self.early.max(1) as f64;
        let seldom_smaller = f64::from(self.smaller) <= SELDOM_SMALLER * f64::from(self.larger);
        let often_larger = self.hardly_smaller == 0 || self.larger >= OFTEN_LARGER;
        match () {
            () if times >= GROWN && seldom_smaller && often_larger => Trend::Grows,
            () if (1.0 / STAYED..=STAYED).contains(&times) => Trend::Stays,
            () => Trend::Varies,
        }
    }
}
