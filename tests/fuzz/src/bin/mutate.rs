//! Mutates recordings and has every report made of each, on all cores: the driver behind `scripts/dev/fuzz`.
//!
//!     mutate [--only NUMBER] [--out FOLDER] RUNS [RECORDING ...]
//!
//! Input NUMBER is the same in every run with the same recordings. A fault is a panic, an input that takes more than
//! `PATIENCE`, or one that takes more memory than `BASE` + `FACTOR` × its size. Prints the figures; exits 1 on a fault.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use leaktrace_fuzz::{Fate, Random, SYNTHETIC, mutate, synthetic, tell};

/// One input may take so long on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);
/// What one input may take in memory.
const BASE: u64 = 64 << 20;
const FACTOR: u64 = 64;
/// Recordings are cut to so many bytes: what matters stands in front.
const LONGEST: usize = 12 * 128 * 1024;

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

/// Counts what each thread has allocated.
struct Counting;

fn count(bytes: i64) {
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: everything is the system's; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // While it is moved, both are there.
        count(size as i64);
        // SAFETY: the caller's promise.
        let moved = unsafe { System.realloc(memory, layout, size) };
        count(-(layout.size() as i64));
        moved
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What the workers found.
#[derive(Default)]
struct Found {
    /// By what it is: how often, and the first input.
    faults: BTreeMap<String, (u64, u64)>,
    fates: BTreeMap<&'static str, u64>,
    slowest: (Duration, u64),
    /// Peak memory in bytes, of which size of input, and which.
    largest: (u64, u64, u64),
}

struct Seeds(Vec<Vec<u8>>);

impl Seeds {
    fn input(&self, number: u64) -> (Vec<u8>, Option<u32>) {
        let mut r = Random::new(number);
        let seed = &self.0[r.below(self.0.len() as u64) as usize];
        let other = &self.0[r.below(self.0.len() as u64) as usize];
        let step = (r.below(4) == 0).then(|| r.below(50) as u32);
        (mutate(seed, other, &mut r), step)
    }
}

/// The input each worker is at, and when it began in ms; 0: at none.
struct At {
    input: AtomicU64,
    since: AtomicU64,
}

thread_local! {
    static PANICKED: Cell<Option<String>> = const { Cell::new(None) };
}

fn one(seeds: &Seeds, number: u64, found: &Mutex<Found>) {
    let (bytes, step) = seeds.input(number);
    let before = LIVE.get();
    PEAK.set(before);
    let began = Instant::now();
    let fate = panic::catch_unwind(|| tell(&bytes, step));
    let took = began.elapsed();
    let peak = (PEAK.get() - before) as u64;
    let mut found = found.lock().unwrap_or_else(|e| e.into_inner());
    let fate = match fate {
        Ok(Fate::Refused) => "refused",
        Ok(Fate::NoSuchStep) => "no such step",
        Ok(Fate::Told) => "told",
        Err(_) => {
            let what = PANICKED.take().unwrap_or_default();
            found.fault(what, number);
            "fault"
        }
    };
    *found.fates.entry(fate).or_default() += 1;
    found.slowest = found.slowest.max((took, number));
    if took > PATIENCE {
        found.fault(format!("took {took:?}"), number);
    }
    if peak > found.largest.0 {
        found.largest = (peak, bytes.len() as u64, number);
    }
    if peak > BASE + FACTOR * bytes.len() as u64 {
        found.fault(format!("more than {} MiB of memory", peak >> 20), number);
    }
}

impl Found {
    fn fault(&mut self, what: String, number: u64) {
        self.faults.entry(what).or_insert((0, number)).0 += 1;
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut only, mut out, mut plain) = (None, None, Vec::new());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--only" => only = arguments.next().and_then(|n| n.parse::<u64>().ok()),
            "--out" => out = arguments.next().map(PathBuf::from),
            _ => plain.push(argument),
        }
    }
    let Some(runs) = plain.first().and_then(|n| n.parse::<u64>().ok()) else {
        eprintln!("usage: mutate [--only NUMBER] [--out FOLDER] RUNS [RECORDING ...]");
        return ExitCode::from(2);
    };
    let mut seeds = Seeds((0..SYNTHETIC).map(synthetic).collect());
    for file in &plain[1..] {
        match std::fs::read(file) {
            Ok(mut bytes) => {
                shorten(&mut bytes);
                // As many again as the made-up ones, all together.
                seeds.0.push(bytes);
            }
            Err(e) => {
                eprintln!("{file}: {e}");
                return ExitCode::from(2);
            }
        }
    }
    for (number, seed) in seeds.0.iter().enumerate() {
        assert_eq!(tell(seed, None), Fate::Told, "seed {number} is no recording");
    }
    if let Some(number) = only {
        let (bytes, step) = seeds.input(number);
        println!("input {number}: {} bytes, step {step:?}: {:?}", bytes.len(), tell(&bytes, step));
        return ExitCode::SUCCESS;
    }
    panic::set_hook(Box::new(|info| {
        let place = info.location().map_or_else(String::new, |l| format!("{}:{}", l.file(), l.line()));
        let what = info.payload_as_str().unwrap_or("").chars().take(120).collect::<String>();
        PANICKED.set(Some(format!("panic at {place}: {what}")));
    }));
    let (began, next, found) = (Instant::now(), AtomicU64::new(0), Mutex::new(Found::default()));
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    let at: Vec<At> =
        (0..workers).map(|_| At { input: AtomicU64::new(0), since: AtomicU64::new(0) }).collect();
    let now = || began.elapsed().as_millis() as u64 + 1;
    std::thread::scope(|scope| {
        let running: Vec<_> = at
            .iter()
            .map(|at| {
                let (next, found, seeds) = (&next, &found, &seeds);
                scope.spawn(move || {
                    loop {
                        let number = next.fetch_add(1, Relaxed);
                        if number >= runs {
                            return;
                        }
                        at.input.store(number, Relaxed);
                        at.since.store(now(), Relaxed);
                        one(seeds, number, found);
                        at.since.store(0, Relaxed);
                    }
                })
            })
            .collect();
        // What never ends cannot be caught: it ends the run.
        while running.iter().any(|r| !r.is_finished()) {
            std::thread::sleep(Duration::from_millis(200));
            for at in &at {
                let since = at.since.load(Relaxed);
                if since != 0 && now().saturating_sub(since) > 12 * PATIENCE.as_millis() as u64 {
                    println!("FAULT  input {} hangs", at.input.load(Relaxed));
                    std::process::exit(1);
                }
            }
        }
    });
    let took = began.elapsed();
    let found = found.into_inner().unwrap_or_else(|e| e.into_inner());
    for (what, (count, first)) in &found.faults {
        println!("FAULT  {what}  ({count} times, first input {first})");
        if let Some(folder) = &out {
            keep(folder, *first, &seeds.input(*first).0);
        }
    }
    let fates: Vec<String> = found.fates.iter().map(|(fate, n)| format!("{n} {fate}")).collect();
    let ((slow, slow_input), (peak, size, peak_input)) = (found.slowest, found.largest);
    println!(
        "{runs} inputs from {} recordings in {:.0} s, {:.0} a second ({}); slowest {:.2} s (input {slow_input}); most \
         memory {} MiB for {} KiB (input {peak_input}); {} faults",
        seeds.0.len(),
        took.as_secs_f64(),
        runs as f64 / took.as_secs_f64(),
        fates.join(", "),
        slow.as_secs_f64(),
        peak >> 20,
        size >> 10,
        found.faults.len()
    );
    ExitCode::from(u8::from(!found.faults.is_empty()))
}

/// Keeps the segments in front, and tells the header so.
fn shorten(bytes: &mut Vec<u8>) {
    const SEGMENT: usize = 128 * 1024;
    let used = bytes.get(32..40).and_then(|b| b.try_into().ok()).map_or(1, u64::from_le_bytes) as usize;
    bytes.truncate((used * SEGMENT).min(LONGEST));
    let kept = (bytes.len() / SEGMENT) as u64;
    if let Some(word) = bytes.get_mut(32..40) {
        word.copy_from_slice(&kept.to_le_bytes());
    }
}

fn keep(folder: &Path, number: u64, bytes: &[u8]) {
    let file = folder.join(format!("input-{number}.ltrace"));
    if let Err(e) = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&file, bytes)) {
        eprintln!("{}: {e}", file.display());
    }
}
