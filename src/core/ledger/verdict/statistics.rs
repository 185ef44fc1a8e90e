//! The statistics that the rules share. They must not know what they are about.

/// Causes listed at most, the first in the order they are given: each further one is compared with all of
/// them.
const MAX_GROUPS: usize = 200;
/// The mean of seven rises that are chance alone is so many standard errors above zero in about one of 300 cases (Student's t).
const NO_CHANCE: f64 = 4.0;
/// Each stretch of a steady rise adds at least this share of the mean one.
const EVEN: f64 = 0.5;

/// Returns the median; 0 of none.
pub fn median(values: impl Iterator<Item = u64>) -> f64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2] as f64,
        n => (values[n / 2 - 1] as f64 + values[n / 2] as f64) / 2.0,
    }
}

/// Returns the 95 % confidence interval of the median: two of the values, chosen by their ranks alone,
/// whatever the distribution (the sign test inverted). Of fewer than six values it is their whole range,
/// which covers less.
pub fn interval(values: impl Iterator<Item = u64>) -> Option<[f64; 2]> {
    /// Of the normal distribution, two-sided 95 %.
    const Z: f64 = 1.96;
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    let n = values.len() as f64;
    let rank = (0.5 * (n - Z * n.sqrt())).max(1.0) as usize;
    let (low, high) = (values.get(rank - 1)?, values.get(values.len() - rank)?);
    Some([*low as f64, *high as f64])
}

/// Adds up the intervals of two values that vary together.
pub fn sum_intervals(a: Option<[f64; 2]>, b: Option<[f64; 2]>) -> Option<[f64; 2]> {
    let (Some(a), Some(b)) = (a, b) else { return a.or(b) };
    Some([a[0] + b[0], a[1] + b[1]])
}

/// Returns how much two sorted lists overlap (Jaccard index).
pub fn overlap(a: &[u32], b: &[u32]) -> f64 {
    let both = a.iter().filter(|x| b.binary_search(x).is_ok()).count();
    let either = a.len() + b.len() - both;
    if either == 0 { 0.0 } else { both as f64 / either as f64 }
}

/// Groups what belongs together, in the order given: each joins the first group whose first member it fits.
pub fn grouped<T>(all: Vec<T>, fits: impl Fn(&T, &T) -> bool) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    for one in all {
        let room = groups.len() < MAX_GROUPS;
        match groups.iter_mut().find(|g| g.first().is_some_and(|leader| fits(leader, &one))) {
            Some(group) => group.push(one),
            None if room => groups.push(vec![one]),
            None => {}
        }
    }
    groups
}

/// Returns the distances from each number to the next.
pub fn gaps(sorted: &[u32]) -> Vec<u64> {
    sorted.windows(2).map(|w| u64::from(w[1].saturating_sub(w[0]))).collect()
}

/// Returns whether (nearly) all distances are (nearly) the same.
pub fn is_regular(gaps: &[u64]) -> bool {
    let middle = median(gaps.iter().copied());
    let near = |&&gap: &&u64| (gap as f64 - middle).abs() <= (0.1 * middle).max(1.0);
    !gaps.is_empty() && gaps.iter().filter(near).count() as f64 >= 0.9 * gaps.len() as f64
}

/// Returns what a stretch between two levels adds, if each adds about as much.
pub fn steady(levels: &[i64]) -> Option<f64> {
    let (first, last) = (*levels.first()?, *levels.last()?);
    let growth = last.checked_sub(first).filter(|&g| g > 0)?;
    let mean = growth as f64 / (levels.len() - 1) as f64;
    let rises = levels.windows(2).all(|w| w[1].saturating_sub(w[0]) as f64 >= EVEN * mean);
    rises.then_some(mean)
}

/// Returns the least and the most that a stretch between two levels can add, if each adds about as much, where up to so much of each
/// level may be spare, and if not all of the growth may be that.
pub fn steady_within(levels: &[i64], spare: &[i64]) -> Option<(f64, f64)> {
    let (mut least, mut most) = (0.0f64, f64::INFINITY);
    for (j, (&later, &of_later)) in levels.iter().zip(spare).enumerate() {
        for (i, (&earlier, &of_earlier)) in levels.iter().zip(spare).enumerate().take(j) {
            let (growth, stretches) = (later.saturating_sub(earlier), (j - i) as f64);
            least = least.max(growth.saturating_sub(of_later) as f64 / (stretches + EVEN));
            most = most.min(growth.saturating_add(of_earlier) as f64 / (stretches - EVEN));
        }
    }
    (least > 0.0 && least <= most).then_some((least, most))
}

/// Levels at some places, and the line that lies nearest to them (least squares).
#[derive(Default)]
pub struct Levels {
    count: f64,
    places: f64,
    levels: f64,
    squares: f64,
    products: f64,
}

impl Levels {
    pub fn add(&mut self, place: f64, level: f64) {
        self.count += 1.0;
        self.places += place;
        self.levels += level;
        self.squares += place * place;
        self.products += place * level;
    }

    /// Returns by how much the line rises from one place to the next.
    pub fn slope(&self) -> f64 {
        let spread = self.count * self.squares - self.places * self.places;
        if spread > 0.0 { (self.count * self.products - self.places * self.levels) / spread } else { 0.0 }
    }
}

/// Returns what a stretch between two levels adds on average, if all but one rise and the average is hardly chance alone.
pub fn irregular(levels: &[i64]) -> Option<f64> {
    let rises: Vec<f64> = levels.windows(2).map(|w| w[1].saturating_sub(w[0]) as f64).collect();
    let n = rises.len() as f64;
    let mean = rises.iter().sum::<f64>() / n;
    let variance = rises.iter().map(|rise| (rise - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let falls = rises.iter().filter(|&&rise| rise <= 0.0).count();
    (falls <= 1 && mean > 0.0 && mean >= NO_CHANCE * (variance / n).sqrt()).then_some(mean)
}
