//! The truth log of the simulated GPU: every allocation and free, as the driver itself saw them.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// One allocation that began or ended.
#[derive(Clone, Debug)]
pub struct Event {
    /// The length of the log up to the end of this line.
    pub end: u64,
    pub thread: u64,
    pub begins: bool,
    pub api: String,
    pub address: u64,
    pub bytes: u64,
    /// The device's index; −1 is pinned host memory.
    pub device: i64,
}

/// The events of a log, in order.
pub struct Truth {
    pub events: Vec<Event>,
}

/// The live bytes of each device that has any; −1 is pinned host memory.
pub type Live = BTreeMap<i64, u64>;

impl Truth {
    pub fn read(path: &Path) -> Truth {
        let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut end = 0;
        let events = text.split_inclusive('\n').filter(|l| l.ends_with('\n')).map(|line| {
            end += line.len() as u64;
            parse(line.trim_end(), end).unwrap_or_else(|| panic!("not a line of a truth log: {line:?}"))
        });
        Truth { events: events.collect() }
    }

    /// Returns what was alive when the log was `length` bytes long.
    pub fn live_at(&self, length: u64) -> Live {
        self.live_after(self.events.iter().take_while(|e| e.end <= length).count())
    }

    /// Returns what was alive after the first `count` events.
    pub fn live_after(&self, count: usize) -> Live {
        live(&self.events[..count])
    }

    /// Returns what is alive at the end.
    pub fn live(&self) -> Live {
        live(&self.events)
    }
}

/// Returns what is alive after these events.
pub fn live<'e>(events: impl IntoIterator<Item = &'e Event>) -> Live {
    let mut alive: HashMap<u64, (u64, i64)> = HashMap::new();
    for e in events {
        if e.begins {
            let before = alive.insert(e.address, (e.bytes, e.device));
            assert!(before.is_none(), "the truth log gives {:#x} twice", e.address);
        } else {
            assert!(
                alive.remove(&e.address).is_some(),
                "the truth log ends {:#x} before it begins",
                e.address
            );
        }
    }
    let mut sums = Live::new();
    for (bytes, device) in alive.into_values().filter(|(bytes, _)| *bytes > 0) {
        *sums.entry(device).or_default() += bytes;
    }
    sums
}

fn parse(line: &str, end: u64) -> Option<Event> {
    let words: Vec<&str> = line.split(' ').collect();
    let [_, thread, sign, api, address, bytes, device] = words[..] else { return None };
    Some(Event {
        end,
        thread: thread.parse().ok()?,
        begins: match sign {
            "+" => true,
            "-" => false,
            _ => return None,
        },
        api: api.to_owned(),
        address: u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()?,
        bytes: bytes.parse().ok()?,
        device: device.parse().ok()?,
    })
}
