//! The simulated machine's shape, from the environment.

pub struct Config {
    /// Bytes of memory per device.
    pub memory: u64,
    /// How many devices there are, whatever `CUDA_VISIBLE_DEVICES` hides.
    pub present: u32,
    /// The physical number of each visible device.
    pub visible: Vec<u32>,
    /// Compute capability, major and minor.
    pub cc: (i32, i32),
    /// How many reads of a flag bring one that is set; 0: none is.
    pub flag_period: u32,
}

const MOST_DEVICES: u32 = 64;

impl Config {
    pub fn from_env() -> Config {
        let var = |name: &str| std::env::var(name).ok();
        let present =
            var("SIMGPU_DEVICES").and_then(|v| v.trim().parse().ok()).unwrap_or(1).min(MOST_DEVICES);
        let cc: i32 = var("SIMGPU_CC").and_then(|v| v.trim().replace('.', "").parse().ok()).unwrap_or(80);
        Config {
            memory: var("SIMGPU_MEM").and_then(|v| size(&v)).unwrap_or(80 << 30),
            present,
            visible: visible(present, var("CUDA_VISIBLE_DEVICES").as_deref()),
            cc: (cc / 10, cc % 10),
            flag_period: var("SIMGPU_FLAGS").and_then(|v| v.trim().parse().ok()).unwrap_or(0),
        }
    }
}

/// Reads a size such as `80G`, `1.5t`, `512M` or `4096`.
fn size(text: &str) -> Option<u64> {
    let text = text.trim().trim_end_matches(['b', 'B']).trim_end_matches(['i', 'I']);
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    let number: f64 = digits.trim().parse().ok()?;
    (number > 0.0).then_some((number * (1u64 << shift) as f64) as u64)
}

/// Reads `CUDA_VISIBLE_DEVICES`. Documented: the first invalid number hides itself and all that follow.
fn visible(present: u32, wish: Option<&str>) -> Vec<u32> {
    let Some(wish) = wish else { return (0..present).collect() };
    let mut list = Vec::new();
    for word in wish.split(',') {
        match word.trim().parse::<u32>() {
            Ok(n) if n < present && !list.contains(&n) => list.push(n),
            _ => break,
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::{size, visible};

    #[test]
    fn sizes_take_suffixes() {
        assert_eq!(size("80G"), Some(80 << 30));
        assert_eq!(size("1.5m"), Some(3 << 19));
        assert_eq!(size("2GiB"), Some(2 << 30));
        assert_eq!(size("4096"), Some(4096));
        assert_eq!(size("lots"), None);
    }

    #[test]
    fn visible_devices_stop_at_the_first_bad_one() {
        assert_eq!(visible(3, None), [0, 1, 2]);
        assert_eq!(visible(3, Some("2,0")), [2, 0]);
        assert_eq!(visible(3, Some("1,7,0")), [1]);
        assert!(visible(3, Some("")).is_empty());
        assert!(visible(3, Some("-1")).is_empty());
    }
}
