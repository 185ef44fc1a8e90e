//! What the reader makes of recordings that are whole, torn or made up.

use super::*;
use crate::format::backfilled::BackfilledBoundary;
use crate::format::event::{Event, EventKind};

/// A recording whose segments hold events of these numbers.
fn recording(segments: &[Vec<u64>]) -> Recording {
    read_keeping(segments, KEPT)
}

/// The same, of which so many bytes of events are kept.
fn read_keeping(segments: &[Vec<u64>], kept: usize) -> Recording {
    let mut bytes = vec![0; SEGMENT * (segments.len() + 1)];
    let mut set = |at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    set(0, u64::from_le_bytes(MAGIC));
    set(header::VERSION, u64::from(VERSION) | (SEGMENT as u64) << 32);
    set(header::SEGMENTS, segments.len() as u64 + 1);
    for (i, numbers) in segments.iter().enumerate() {
        let start = (i + 1) * SEGMENT;
        set(start + segment::USE, usage::EVENTS);
        set(start + segment::FIRST, 1);
        for (n, &seq) in numbers.iter().enumerate() {
            let e = Event { seq, address: seq * 7, ..Event::new(EventKind::BlockFree) };
            for (word, value) in e.pack().into_iter().enumerate() {
                set(start + PAYLOAD + n * RECORD + word * 8, value);
            }
        }
    }
    let length = bytes.len() as u64;
    take_apart(Source::Bytes(bytes), length, kept).expect("is a recording")
}

#[test]
fn the_events_of_all_threads_come_in_the_order_of_their_numbers() {
    let mut seed = 9u64;
    for segments in 1..12 {
        let mut all = vec![Vec::new(); segments as usize];
        for seq in 1..3000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Threads take turns; some numbers are missing, and now and then one is there twice.
            let turn = if seed >> 60 == 0 { seed >> 33 } else { seq / 100 };
            if seed >> 40 & 63 != 0 {
                all[(turn % segments) as usize].push(seq);
            }
            if seed >> 40 & 63 == 1 {
                let other = &mut all[((turn + 1) % segments) as usize];
                if other.last() != Some(&seq) {
                    other.push(seq);
                }
            }
        }
        let mut wanted: Vec<u64> = all.iter().flatten().copied().collect();
        wanted.sort_unstable();
        // What is not kept is read again.
        for kept in [KEPT, 40_000, 0] {
            let read = read_keeping(&all, kept);
            let events: Vec<Event> = read.events().collect();
            assert!(events.iter().map(|e| e.seq).eq(wanted.iter().copied()), "{segments} segments, {kept}");
            assert!(events.iter().all(|e| e.address == e.seq * 7 && e.kind == EventKind::BlockFree as u8));
        }
    }
    assert_eq!(recording(&[vec![], vec![5]]).events().count(), 1);
    // A backfilled boundary lies before its event, or the first that is left behind it, or the end.
    let mut backfilled = recording(&[vec![2, 3, 7], vec![4, 5, 8]]);
    let places = [1, 2, 4, 4, 6, 9].map(|seq| BackfilledBoundary { seq, ns: 0, depth: 1, ends_step: true });
    backfilled.tables.backfilled.add(1, true, &crate::format::backfilled::pack(&places));
    let order: Vec<(u64, u64)> = backfilled.events().map(|e| (e.seq, e.size)).collect();
    let (event, boundary) = (|seq| (seq, 0), |place| (0, place));
    let wanted = [
        [boundary(1), boundary(2), event(2), event(3)],
        [boundary(4), boundary(4), event(4), event(5)],
        [boundary(6), event(7), event(8), boundary(9)],
    ];
    assert_eq!(order, wanted.concat());
}

#[test]
fn one_damaged_number_costs_one_event() {
    let far = 1 << 40;
    for (there, read, problems) in [
        (vec![4, 5, 2, 6], vec![4, 5, 6], 1),
        (vec![4, 5, far, 6, 7], vec![4, 5, 6, 7], 1),
        (vec![far, 2, 3], vec![2, 3], 1),
        (vec![2, 3, far], vec![2, 3], 1),
        (vec![far], vec![], 1),
        (vec![2, 3, 1 << 31], vec![2, 3, 1 << 31], 0),
    ] {
        for kept in [KEPT, 0] {
            let recording = read_keeping(&[there.clone(), vec![1, 9]], kept);
            let mut wanted = [&read[..], &[1, 9]].concat();
            wanted.sort_unstable();
            assert_eq!(recording.events().map(|e| e.seq).collect::<Vec<_>>(), wanted);
            assert_eq!(recording.problems.len(), problems, "{there:?}: {:?}", recording.problems);
        }
    }
}

#[test]
fn a_thread_may_leave_a_pair_of_events_unfinished() {
    assert_eq!(recording(&[vec![1, 2], vec![3, 6]]).unfinished_events, 4);
}
