//! The loops of CPython's own library, against what each interpreter's `dis` says of them.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::extents::Extents;
use super::opcodes::Meanings;
use super::{CodeText, EventContext, Loops, Moment, Progress, Seen, Shown, What};
use crate::cpython;
use Shown::{Allocation, Free};

/// Every CPython that is known here and on this machine.
fn pythons() -> Vec<(u32, PathBuf)> {
    let versions = std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv/versions"));
    let folders: Vec<PathBuf> = versions
        .iter()
        .filter_map(|v| std::fs::read_dir(v).ok())
        .flatten()
        .flatten()
        .map(|e| e.path().join("bin"))
        .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()))
        .chain([14, 15].map(from_debian))
        .collect();
    let ask = |python: &PathBuf, minor: u32| {
        let check = format!("import sys; sys.exit(sys.version_info[:2] != (3, {minor}))");
        python.exists()
            && Command::new(python).args(["-c", &check]).output().is_ok_and(|o| o.status.success())
    };
    cpython::VERSIONS
        .filter_map(|minor| {
            let mut all = folders.iter().map(|folder| folder.join(format!("python3.{minor}")));
            all.find(|python| ask(python, minor)).map(|python| (minor, python))
        })
        .collect()
}

/// Where `scripts/dev/debian-python` puts an interpreter.
fn from_debian(minor: u32) -> PathBuf {
    let repo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    repo.join(format!("target/python-3.{minor}/root/usr/bin"))
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    if hex == "-" { Vec::new() } else { (0..hex.len()).step_by(2).map(digits).collect() }
}

/// A loop as the script tells it: header, where the body begins, the variable of its items, offsets in it.
fn told(text: &str) -> (u32, u32, Option<u16>, Vec<u32>) {
    let mut numbers = text.split(',').map(|n| n.parse::<i64>().unwrap());
    let (header, body) = (numbers.next().unwrap() as u32, numbers.next().unwrap() as u32);
    (header, body, numbers.next().and_then(|v| v.try_into().ok()), numbers.map(|n| n as u32).collect())
}

#[test]
fn loops_are_those_of_dis() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/programs/extents.py");
    let pythons = pythons();
    assert!(!pythons.is_empty(), "no CPython 3.8 to 3.15 on this machine");
    let running: Vec<_> = pythons
        .into_iter()
        .map(|(minor, python)| {
            let mut command = Command::new(python);
            command.arg(script).stdout(std::process::Stdio::piped());
            (minor, command.spawn().unwrap())
        })
        .collect();
    for (minor, child) in running {
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success(), "3.{minor}");
        let text = String::from_utf8(out.stdout).unwrap();
        let (mut codes, mut loops) = (0, 0);
        for line in text.lines() {
            let [name, memory, exceptions, listed] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("3.{minor}: {line}")
            };
            let memory = bytes(memory);
            let extents = Extents::read(minor, &memory, &bytes(exceptions), name, false)
                .unwrap_or_else(|| panic!("3.{minor}: {name} is not understood"));
            let mut truth: Vec<_> = listed.split(';').filter(|l| *l != "-").map(told).collect();
            let mut found: Vec<_> = extents.all().iter().map(|l| (l.header, l.body, l.variable)).collect();
            found.sort_unstable();
            truth.sort_unstable();
            let headers: Vec<_> = truth.iter().map(|t| (t.0, t.1, t.2)).collect();
            assert_eq!(found, headers, "3.{minor}: {name}");
            // The innermost loop at each instruction is the smallest that has it.
            for offset in (0..memory.len() as u32).step_by(2) {
                let smallest = truth.iter().filter(|t| t.3.binary_search(&offset).is_ok());
                let Some(smallest) = smallest.min_by_key(|t| t.3.len()) else { continue };
                let chain = extents.around(offset);
                let innermost = chain.get().last().map(|&number| extents.all()[usize::from(number)].header);
                // Two may be of one size: handlers that lead back into either.
                let size = truth.iter().find(|t| Some(t.0) == innermost).map(|t| t.3.len());
                assert_eq!(size, Some(smallest.3.len()), "3.{minor}: {name} at {offset}");
            }
            codes += 1;
            loops += truth.len();
        }
        println!("3.{minor}: {codes} code objects, {loops} loops");
        assert!(codes > 100 && loops > 150, "3.{minor}: {codes} code objects, {loops} loops");
    }
}

#[test]
fn nonsense_is_no_loop() {
    assert!(cpython::VERSIONS.into_iter().all(|minor| Meanings::of(minor).is_some()));
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 33) as u8
    };
    for _ in 0..2000 {
        let length = usize::from(next()) + 1;
        let bytes: Vec<u8> = (0..length).map(|_| next()).collect();
        let table: Vec<u8> = (0..next() % 40).map(|_| next()).collect();
        for minor in cpython::VERSIONS {
            if let Some(extents) = Extents::of(minor, &bytes, &table, "f") {
                let deepest = (0..length as u32).map(|offset| extents.around(offset).get().len()).max();
                assert!(deepest <= Some(8));
            }
        }
    }
    assert!(Extents::of(cpython::VERSIONS.end() + 1, &[0, 0], &[], "f").is_none());
}

/// Codes 1, 11, 12 and from 100 on: a `for` loop from offset 2 to 10. Others: none. Those from 100 on are a library's.
struct Program(u64);

impl EventContext for Program {
    fn moment(&mut self) -> Moment {
        Moment { seq: self.0, ns: self.0 }
    }
    fn id(&mut self, seen: &Seen) -> u32 {
        seen.code as u32
    }
    fn read(&mut self, seen: &Seen) -> CodeText {
        // GET_ITER, FOR_ITER to 12, three NOPs, JUMP_ABSOLUTE to 2, NOP, RETURN_VALUE of CPython 3.8.
        let looping = [68, 0, 93, 8, 9, 0, 9, 0, 9, 0, 113, 2, 9, 0, 83, 0];
        let loops = matches!(seen.code, 1 | 11 | 12 | 100..);
        let bytes = if loops { looping.to_vec() } else { [9, 0].repeat(40) };
        CodeText { minor: 8, bytes, library: seen.code >= 100, ..CodeText::default() }
    }
    fn iterator(&mut self, _seen: &Seen, _stack: u16, _depth: u16) -> u64 {
        0
    }
    fn goes_down(&mut self, _seen: &Seen, _stack: u16, _depth: u16) -> bool {
        false
    }
    fn variable(&mut self, _seen: &Seen, _variable: u16) -> u64 {
        0
    }
    fn locals(&mut self, _seen: &Seen, _count: u16) -> u64 {
        0
    }
    fn locals_closely(&mut self, _seen: &Seen, _count: u16) -> u64 {
        0
    }
}

/// The frames of an event, from the outermost in: frame, code, offset, entered from C.
type Stack<'a> = &'a [(usize, usize, u32, bool)];

/// Runs allocations, and returns where steps ended.
fn ends(events: &[Stack]) -> Vec<u64> {
    ends_of(&events.iter().map(|&stack| (Shown::Allocation, stack)).collect::<Vec<_>>())
}

/// Runs events, and returns where steps ended.
fn ends_of(events: &[(Shown, Stack)]) -> Vec<u64> {
    ends_in(events, |progress| assert_eq!(progress, Progress::Nothing))
}

/// Counts the steps of a longer run.
fn steps_of(events: &[(Shown, Stack)]) -> usize {
    ends_in(events, |_| {}).len()
}

fn ends_in(events: &[(Shown, Stack)], check: impl Fn(Progress)) -> Vec<u64> {
    let (mut loops, mut program) = (Loops::new(false, false), Program(0));
    let slot = loops.slot(1, &mut program);
    for &(shown, stack) in events {
        let what = What { shown, framework: true, objects: 0, restless: false };
        program.0 += 1;
        let seen = |&(frame, code, offset, entry): &(usize, usize, u32, bool)| Seen {
            frame,
            code,
            offset,
            entry,
            key: 0,
        };
        let frames: Vec<Seen> = stack.iter().map(seen).collect();
        check(loops.event(slot, &frames, 0, 1, what, &mut program));
    }
    let mut past: Vec<u64> = loops
        .choose(1)
        .map_or_else(Vec::new, |s| s.past.iter().filter(|p| p.ends_step).map(|p| p.seq).collect());
    loops.finish(&mut program);
    past.extend(loops.ended().iter().filter(|(_, main)| *main).map(|_| u64::MAX));
    past
}

/// A thread whose only function ends, and begins again where the one before had its memory: a backward pass that computes
/// the forward pass anew.
#[test]
fn a_thread_begins_again_with_another_function() {
    let at = |offset| [(10, 7, offset, true)];
    let (early, late) = (at(4), at(8));
    assert_eq!(ends(&[&late, &early, &late, &early]), [0u64; 0]);
}

#[test]
fn an_earlier_instruction_is_the_next_round() {
    let at = |offset| [(10, 1, offset, false)];
    let (a, b, c) = (at(4), at(8), at(12));
    assert_eq!(ends(&[&a, &b, &a, &b, &a, &c]), [3, 5, 6]);
    assert_eq!(ends(&[&a, &b, &a, &b]), [3, u64::MAX]);
    // Fetching the next item, of which there is none in the end, is no round.
    let fetch = at(2);
    assert_eq!(ends(&[&fetch, &a, &fetch, &b, &fetch, &c]), [3, 5]);
}

#[test]
fn a_call_made_again_is_the_next_round() {
    let at = |offset| [(10, 1, 6, false), (20, 2, 4, false), (30, 3, offset, false)];
    let (early, late, between) = (at(10), at(20), [(10, 1, 6, false)]);
    assert_eq!(ends(&[&early, &late, &early, &late]), [3, u64::MAX]);
    // It had ended in between.
    assert_eq!(ends(&[&early, &between, &late]), [3, u64::MAX]);
    // Another function that got the same memory.
    let other = [(10, 1, 6, false), (20, 4, 4, false)];
    assert_eq!(ends(&[&early, &other]), [2, u64::MAX]);
}

#[test]
fn what_c_calls_again_is_a_loop_where_none_is() {
    // No loop is at offset 12.
    let at = |offset| [(10, 1, 12, false), (20, 2, offset, true)];
    let (a, b) = (at(10), at(20));
    assert_eq!(ends(&[&a, &b, &a, &b, &a, &b]), [3, 5, u64::MAX]);
}

#[test]
fn what_c_calls_again_is_no_round_where_others_are_proven() {
    let at = |mine, offset| [(10, 1, mine, false), (20, 2, offset, true)];
    let (a, b, later) = (at(4, 10), at(4, 20), at(8, 10));
    assert_eq!(ends(&[&a, &b, &a, &b, &later, &a, &b, &a, &later]), [6, u64::MAX]);
    // Where nothing better is there, it is believed.
    assert_eq!(ends(&[&a, &b, &a, &b]), [3, u64::MAX]);
}

#[test]
fn what_frees_when_an_object_goes_is_no_round() {
    let made = |offset| [(10, 1, 6, false), (20, 2, offset, false)];
    let (early, late, gone) = (made(10), made(20), [(10, 1, 6, false), (30, 3, 4, true)]);
    let round = [(Allocation, &early[..]), (Allocation, &late[..]), (Free, &gone[..]), (Free, &gone[..])];
    assert_eq!(ends_of(&[round, round, round].concat()), [5, 9, u64::MAX]);
}

/// What is shown, and the frames there.
type Event = (Shown, Vec<(usize, usize, u32, bool)>);

/// What a round of a loop does, in the frames around it.
struct Round<'a> {
    around: Stack<'a>,
    code: usize,
    events: &'a [Shown],
}

impl Round<'_> {
    /// Adds so many rounds, in a function that is called there.
    fn add(&self, rounds: usize, out: &mut Vec<Event>) {
        for _ in 0..rounds {
            for (at, &shown) in self.events.iter().enumerate() {
                // Each lies in a function that the round calls, later than the one before.
                let frames = [(40, self.code, 6, false), (50, 2, 4 + 2 * at as u32, false)];
                out.push((shown, [self.around, &frames].concat()));
            }
        }
    }
}

fn counted(events: &[Event]) -> usize {
    steps_of(&events.iter().map(|(shown, stack)| (*shown, &stack[..])).collect::<Vec<_>>())
}

/// `epochs` rounds of a loop with 8 batches of a training and 8 of an evaluation, which keeps what it makes.
fn epochs(epochs: usize) -> usize {
    let mut events = Vec::new();
    for _ in 0..epochs {
        let at = |offset| [(10, 1, offset, false)];
        let (train, evaluate, end) = (at(4), at(6), at(8));
        Round { around: &train, code: 11, events: &[Allocation, Allocation, Free, Free] }.add(8, &mut events);
        Round { around: &evaluate, code: 12, events: &[Allocation, Allocation, Free] }.add(8, &mut events);
        events.push((Free, end.to_vec()));
    }
    counted(&events)
}

#[test]
fn epochs_too_few_to_judge_by_have_the_steps_of_their_batches() {
    assert_eq!(epochs(10), 10 * 16);
    assert_eq!(epochs(4), 4 * 16);
    // So many rounds may be steps that go over layers.
    assert_eq!(epochs(20), 20);
}

/// 12 rounds of a loop with these events, and 30 of a training behind it.
fn after(first: &[Shown]) -> usize {
    let mut events = Vec::new();
    let at = |offset| [(10, 2, offset, false)];
    Round { around: &at(4), code: 11, events: first }.add(12, &mut events);
    let train = [[Allocation; 5], [Free; 5]].concat();
    Round { around: &at(8), code: 12, events: &train }.add(30, &mut events);
    counted(&events)
}

#[test]
fn what_sets_something_up_is_no_step() {
    assert_eq!(after(&[Allocation, Allocation, Free]), 30);
    // An evaluation leaves nothing, and another training does as much.
    assert_eq!(after(&[Allocation, Allocation, Free, Free]), 42);
    assert_eq!(after(&[Allocation, Allocation, Allocation, Allocation, Free, Free]), 42);
}

/// Six epochs of a library's: ten batches each, and two rounds with these events.
fn epochs_of_a_library(beside: &[Shown]) -> usize {
    let mut events = Vec::new();
    for _ in 0..6 {
        let at = |offset| [(10, 100, offset, false)];
        let train = [[Allocation; 5], [Free; 5]].concat();
        Round { around: &at(4), code: 101, events: &train }.add(10, &mut events);
        Round { around: &at(6), code: 102, events: beside }.add(2, &mut events);
        events.push((Free, at(8).to_vec()));
    }
    counted(&events)
}

#[test]
fn what_a_library_goes_over_beside_its_loop_is_no_step() {
    assert_eq!(epochs_of_a_library(&[Allocation, Allocation]), 60);
    // Few batches are evaluated.
    assert_eq!(epochs_of_a_library(&[Allocation, Allocation, Allocation, Free, Free, Free]), 72);
}

/// Functions with a `for` loop from offset 2 to 12 whose variable names what is told of its frame; 202 has none.
struct Named {
    seq: u64,
    items: [u64; 32],
}

impl EventContext for Named {
    fn moment(&mut self) -> Moment {
        Moment { seq: self.seq, ns: self.seq }
    }
    fn id(&mut self, seen: &Seen) -> u32 {
        seen.code as u32
    }
    fn read(&mut self, seen: &Seen) -> CodeText {
        // As above, with STORE_FAST in front.
        let looping = [68, 0, 93, 10, 125, 0, 9, 0, 9, 0, 9, 0, 113, 2, 9, 0, 83, 0];
        let bytes = if seen.code == 202 { [9, 0].repeat(40) } else { looping.to_vec() };
        CodeText { minor: 8, bytes, variables: Some(1), ..CodeText::default() }
    }
    fn iterator(&mut self, _seen: &Seen, _stack: u16, _depth: u16) -> u64 {
        0
    }
    fn goes_down(&mut self, _seen: &Seen, _stack: u16, _depth: u16) -> bool {
        false
    }
    fn variable(&mut self, seen: &Seen, _variable: u16) -> u64 {
        self.items[seen.frame]
    }
    fn locals(&mut self, _seen: &Seen, _count: u16) -> u64 {
        0
    }
    fn locals_closely(&mut self, _seen: &Seen, _count: u16) -> u64 {
        0
    }
}

/// Whatever comes: two detectors, of which one takes short cuts, know the same.
#[test]
fn an_event_over_again_is_the_same_as_the_event() {
    let stacks: [Stack; 8] = [
        &[(10, 1, 6, false)],
        &[(10, 1, 8, false)],
        &[(10, 1, 6, false), (20, 202, 4, true)],
        &[(10, 1, 6, false), (20, 202, 4, false), (21, 202, 8, false)],
        &[(10, 1, 6, false), (20, 201, 6, false)],
        &[(10, 1, 6, false), (20, 201, 6, false), (21, 202, 4, true)],
        // The last two come after the choice, so that it is not of their loop.
        &[(12, 201, 6, false)],
        &[(13, 202, 4, false), (12, 201, 6, false), (21, 202, 4, true)],
    ];
    let mut state = 1u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 33) % below
    };
    let mut all = 0;
    for _ in 0..60 {
        let [mut whole, mut short] = [(); 2].map(|()| Loops::new(false, false));
        let mut program = Named { seq: 0, items: [0; 32] };
        let (mut stack, mut objects, mut taken) = (0, 0, 0);
        for n in 0..4000 {
            program.seq += 1;
            if random(20) == 0 {
                stack = random(stacks.len() as u64 - if n < 400 { 2 } else { 0 }) as usize;
            }
            for frame in [10, 12, 20] {
                if random(if frame == 10 { 3 } else { 2 }) > 0 {
                    program.items[frame] = random(6) * 16;
                }
            }
            objects += random(2) as u32;
            if n == 400 {
                let chosen = [&mut whole, &mut short].map(|loops| loops.choose(1));
                assert!(chosen[0].is_some() && chosen[0] == chosen[1]);
            }
            let shown = if n < 400 && random(4) == 0 { Free } else { Allocation };
            let what = What { shown, framework: true, objects, restless: false };
            let seen = |&(frame, code, offset, entry): &(usize, usize, u32, bool)| {
                let key = u64::from(offset) << 1 | u64::from(entry);
                Seen { frame, code, offset, entry, key }
            };
            let frames: Vec<Seen> = stacks[stack].iter().map(seen).collect();
            let full = |loops: &mut Loops, program: &mut Named| {
                let slot = loops.slot(1, program);
                loops.count(shown == Free);
                drop(loops.frames(slot));
                loops.event(slot, &frames, 0, 1, what, program);
                loops.keep(slot, frames.clone());
                loops.ended().to_vec()
            };
            let same = |before: &[Seen]| {
                let named = Named { items: program.items, ..program };
                (before == frames).then_some((objects, named))
            };
            let quick = if shown == Free { None } else { short.repeat(1, 1, same) };
            taken += usize::from(quick.is_some());
            let quick = match quick {
                Some(ended) => ended.into_iter().collect(),
                None => full(&mut short, &mut program),
            };
            assert_eq!(quick, full(&mut whole, &mut program), "at {n}");
        }
        // What may join the loop that was chosen.
        let [others, quickly] = [&whole, &short].map(|loops| format!("{:?}", loops.tree.log));
        assert!(others == quickly && others.len() > 1000);
        // What ended last is told once.
        [&mut whole, &mut short].into_iter().for_each(|loops| loops.finish(&mut program));
        let known = |loops: &Loops| format!("{:?} {:?} {}", loops.tree, loops.shadows, loops.kept);
        let (whole, short) = (known(&whole), known(&short));
        let differ = whole.bytes().zip(short.bytes()).position(|(a, b)| a != b);
        assert_eq!(differ.map(|at| (&whole[at - 200..], &short[at - 200..])), None);
        all += taken;
    }
    assert!(all > 1000, "{all}");
}
