//! A memory snapshot as PyTorch pickles it, for its own viewer: `python -m torch.cuda._memory_viz trace_plot|segment_plot`
//! and pytorch.org/memory_viz. Segments with their blocks at the judged moment, and what led there as far as the events
//! reach. An object that no caching allocator cuts up stands as a segment with one block.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};

use super::Input;
use super::input::device;
use super::pickle::{Memo, Pickle};
use super::window::{Placed, Window};
use crate::ledger::{Layer, Ledger};
use crate::symbol::{FrameKind, NamedFrame, Names};
use crate::trace::record::{Class, Event, Kind, NO_DEVICE};

/// A segment at or above this size is one of the large pool, as PyTorch's allocator sorts them.
const LARGE: u64 = 10 << 20;

/// Writes the snapshot of one recording, with its last `events` events.
pub fn write(input: &Input, events: u64, out: impl Write) -> io::Result<()> {
    let window = Window::new(input);
    let judged = window.judged.unwrap_or(0);
    let mut then = window.base.clone();
    window.events().take_while(|p| p.event.seq <= judged).for_each(|p| then.apply(&p.event));
    let mut snapshot = Snapshot {
        pickle: Pickle::new(out)?,
        input,
        names: input.names(),
        then: &then,
        texts: HashMap::new(),
        stacks: HashMap::new(),
    };
    snapshot.pickle.dict()?;
    snapshot.shared("segments")?;
    snapshot.segments()?;
    snapshot.shared("device_traces")?;
    snapshot.traces(&window, judged, events)?;
    snapshot.shared("allocator_settings")?;
    snapshot.pickle.dict()?;
    snapshot.pickle.end_dict()?;
    snapshot.shared("external_annotations")?;
    snapshot.pickle.list()?;
    snapshot.pickle.end_list()?;
    snapshot.pickle.end_dict()?;
    snapshot.pickle.finish()
}

/// Memory with what lies in it, in order.
struct Range {
    start: u64,
    end: u64,
    site: u32,
    mapped: bool,
    blocks: Vec<(u64, u64, u32)>,
}

struct Snapshot<'a, W: Write> {
    pickle: Pickle<W>,
    input: &'a Input,
    names: Names<'a>,
    /// The books at the judged moment.
    then: &'a Ledger,
    texts: HashMap<String, Memo>,
    stacks: HashMap<u32, Memo>,
}

impl<W: Write> Snapshot<'_, W> {
    fn shared(&mut self, text: &str) -> io::Result<()> {
        if let Some(&memo) = self.texts.get(text) {
            return self.pickle.again(memo);
        }
        self.pickle.text(text)?;
        let memo = self.pickle.remember()?;
        self.texts.insert(text.to_owned(), memo);
        Ok(())
    }

    fn int(&mut self, key: &str, value: i64) -> io::Result<()> {
        self.shared(key)?;
        self.pickle.int(value)
    }

    fn word(&mut self, key: &str, value: u64) -> io::Result<()> {
        self.shared(key)?;
        self.pickle.word(value)
    }

    fn text(&mut self, key: &str, value: &str) -> io::Result<()> {
        self.shared(key)?;
        self.shared(value)
    }

    fn frames(&mut self, stack: u32) -> io::Result<()> {
        self.shared("frames")?;
        if let Some(&memo) = self.stacks.get(&stack) {
            return self.pickle.again(memo);
        }
        let frames = self.names.frames(stack);
        self.pickle.list()?;
        for frame in &frames {
            self.frame(frame)?;
        }
        self.pickle.end_list()?;
        let memo = self.pickle.remember()?;
        self.stacks.insert(stack, memo);
        Ok(())
    }

    fn frame(&mut self, frame: &NamedFrame) -> io::Result<()> {
        let file = match frame.kind {
            FrameKind::Autograd => "autograd",
            _ if frame.file.is_empty() => "??",
            _ => frame.file.as_str(),
        };
        self.pickle.dict()?;
        self.text("filename", file)?;
        self.text("name", &frame.function)?;
        self.int("line", frame.line.map_or(0, i64::from))?;
        self.pickle.end_dict()
    }

    fn stack_of(&self, site: u32) -> u32 {
        self.then.site(site).map_or(0, |s| s.stack)
    }

    fn segments(&mut self) -> io::Result<()> {
        self.pickle.list()?;
        for range in ranges(self.then) {
            self.segment(&range)?;
        }
        self.pickle.end_list()
    }

    fn segment(&mut self, range: &Range) -> io::Result<()> {
        let total = range.end.saturating_sub(range.start);
        let allocated = range.blocks.iter().fold(0u64, |sum, b| sum.wrapping_add(b.1));
        let number = self.then.site(range.site).and_then(|s| device(s.device)).unwrap_or(0);
        self.pickle.dict()?;
        self.int("device", i64::from(number))?;
        self.word("address", range.start)?;
        self.word("total_size", total)?;
        for figure in ["allocated_size", "active_size", "requested_size"] {
            self.word(figure, allocated)?;
        }
        self.int("stream", 0)?;
        self.text("segment_type", if total >= LARGE { "large" } else { "small" })?;
        self.shared("segment_pool_id")?;
        self.pickle.int(0)?;
        self.pickle.int(0)?;
        self.pickle.pair()?;
        self.shared("is_expandable")?;
        self.pickle.bool(range.mapped)?;
        self.frames(self.stack_of(range.site))?;
        self.shared("blocks")?;
        self.pickle.list()?;
        let mut at = range.start;
        for &(address, bytes, site) in &range.blocks {
            self.gap(at, address)?;
            self.block(address, bytes, Some(site))?;
            at = address.saturating_add(bytes);
        }
        self.gap(at, range.end)?;
        self.pickle.end_list()?;
        self.pickle.end_dict()
    }

    fn gap(&mut self, from: u64, to: u64) -> io::Result<()> {
        if to > from { self.block(from, to - from, None) } else { Ok(()) }
    }

    fn block(&mut self, address: u64, bytes: u64, site: Option<u32>) -> io::Result<()> {
        self.pickle.dict()?;
        self.word("address", address)?;
        self.word("size", bytes)?;
        self.word("requested_size", if site.is_some() { bytes } else { 0 })?;
        self.text("state", if site.is_some() { "active_allocated" } else { "inactive" })?;
        self.frames(site.map_or(0, |site| self.stack_of(site)))?;
        self.pickle.end_dict()
    }

    /// One list per device.
    fn traces(&mut self, window: &Window<'_>, judged: u64, events: u64) -> io::Result<()> {
        let numbers = self.then.sites().filter_map(|(_, s)| device(s.device));
        let devices = numbers.max().map_or(0, |last| u32::from(last) + 1);
        let segments = segment_events(window, judged);
        let skipped = window.count.saturating_sub(events);
        self.pickle.list()?;
        for number in 0..devices as u8 {
            self.pickle.list()?;
            let mut live = alive(&window.base);
            let placed = window.events().take_while(|p| p.event.seq <= judged);
            for (n, p) in (0u64..).zip(placed) {
                let what = happened(&p.event, &mut live, &segments);
                if n >= skipped && what.device == number {
                    self.entries(&p, &what)?;
                }
            }
            self.pickle.end_list()?;
        }
        self.pickle.end_list()
    }

    fn entries(&mut self, p: &Placed, what: &Happened) -> io::Result<()> {
        for &action in what.actions {
            self.pickle.dict()?;
            self.text("action", action)?;
            if action == "oom" {
                self.int("device_free", 0)?;
            } else {
                self.word("addr", p.event.address)?;
            }
            self.word("size", what.bytes)?;
            self.int("stream", 0)?;
            self.word("time_us", (self.input.recording.began_ns / 1000).saturating_add(p.at_ns / 1000))?;
            self.frames(what.stack)?;
            self.pickle.end_dict()?;
        }
        Ok(())
    }
}

/// Segments and what stands for one, with their blocks; by address.
fn ranges(then: &Ledger) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for s in then.living_segments() {
        let of = |site| then.site(site).map(|s| s.device);
        match ranges.last_mut() {
            // Pieces mapped one behind the other are one segment: a block may lie across.
            Some(last) if s.mapped && last.mapped && last.end == s.start && of(last.site) == of(s.site) => {
                last.end = s.end;
            }
            _ => ranges.push(Range {
                start: s.start,
                end: s.end,
                site: s.site,
                mapped: s.mapped,
                blocks: vec![],
            }),
        }
    }
    let mut alone = Vec::new();
    let mut at = 0;
    for b in then.living_blocks() {
        while ranges.get(at).is_some_and(|r| r.end <= b.address) {
            at += 1;
        }
        let end = b.address.saturating_add(b.bytes);
        match ranges.get_mut(at).filter(|r| r.start <= b.address && end <= r.end) {
            Some(range) => range.blocks.push((b.address, b.bytes, b.site)),
            None => alone.push(b),
        }
    }
    let of_device = |site| then.site(site).is_some_and(|s| s.layer == Layer::Driver);
    alone.extend(then.living_objects().into_iter().filter(|o| of_device(o.site)));
    ranges.extend(alone.into_iter().map(|b| Range {
        start: b.address,
        end: b.address.saturating_add(b.bytes),
        site: b.site,
        mapped: false,
        blocks: vec![(b.address, b.bytes, b.site)],
    }));
    ranges.sort_by_key(|r| r.start);
    ranges
}

/// What is alive at an address, by whether it is a block: its size, its device, and whether it is a segment.
type Alive = HashMap<(bool, u64), (u64, u8, bool)>;

fn alive(base: &Ledger) -> Alive {
    let of = |site: u32| base.site(site).map_or(NO_DEVICE, |s| s.device);
    let blocks = base.living_blocks().into_iter().map(|b| ((true, b.address), (b.bytes, of(b.site), false)));
    let objects =
        base.living_objects().into_iter().map(|o| ((false, o.address), (o.bytes, of(o.site), false)));
    let segments = base.living_segments().into_iter().filter(|s| !s.mapped);
    let segments = segments.map(|s| ((false, s.start), (s.end.saturating_sub(s.start), of(s.site), true)));
    blocks.chain(objects).chain(segments).collect()
}

/// The numbers of the events that gave a caching allocator a segment.
fn segment_events(window: &Window<'_>, judged: u64) -> HashSet<u64> {
    let mut found = HashSet::new();
    // Not yet known to be one: end and number by start.
    let mut unknown: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for e in window.events().map(|p| p.event).take_while(|e| e.seq <= judged) {
        match Kind::from_code(e.kind) {
            Some(Kind::Alloc) if is_pointer(&e) => {
                unknown.insert(e.address, (e.address.saturating_add(e.size), e.seq));
            }
            Some(Kind::Free) if is_pointer(&e) => {
                unknown.remove(&e.address);
            }
            Some(Kind::BlockAlloc) => {
                let under = unknown.range(..=e.address).next_back().filter(|(_, (end, _))| e.address < *end);
                if let Some((&start, &(_, seq))) = under {
                    found.insert(seq);
                    unknown.remove(&start);
                }
            }
            _ => {}
        }
    }
    found
}

fn is_pointer(e: &Event) -> bool {
    Class::from_code(e.class).is_some_and(|c| !c.is_handle() && !c.is_borrowed() && !c.is_host())
}

/// An event in PyTorch's words; of no device where it has none.
struct Happened {
    actions: &'static [&'static str],
    device: u8,
    bytes: u64,
    stack: u32,
}

fn happened(e: &Event, live: &mut Alive, segments: &HashSet<u64>) -> Happened {
    const FREE: &[&str] = &["free_requested", "free_completed"];
    const FREE_OBJECT: &[&str] = &["free_requested", "free_completed", "segment_free"];
    let told = |actions| Happened { actions, device: e.device, bytes: e.size, stack: e.stack };
    let ended = |actions, (bytes, device, _)| Happened { actions, device, bytes, stack: 0 };
    match Kind::from_code(e.kind) {
        Some(Kind::BlockAlloc) => {
            live.insert((true, e.address), (e.size, e.device, false));
            told(&["alloc"])
        }
        Some(Kind::BlockFree) => live.remove(&(true, e.address)).map_or(told(&[]), |b| ended(FREE, b)),
        Some(Kind::Alloc) if is_pointer(e) => {
            let segment = segments.contains(&e.seq);
            live.insert((false, e.address), (e.size, e.device, segment));
            told(if segment { &["segment_alloc"] } else { &["segment_alloc", "alloc"] })
        }
        Some(Kind::Free) if is_pointer(e) => live
            .remove(&(false, e.address))
            .map_or(told(&[]), |g| ended(if g.2 { &["segment_free"] } else { FREE_OBJECT }, g)),
        Some(Kind::OutOfMemory) => told(&["oom"]),
        _ => told(&[]),
    }
}
