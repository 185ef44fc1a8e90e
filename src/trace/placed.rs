//! Boundaries that were found out about later: each lies before an event that was noted long before it. Both readers put them
//! there, so that the ledger takes everything in in the order it happened.

use super::record::{Event, Kind, RECORD};

/// The sequence number before which this boundary lies, if that is not where it stands.
#[inline]
pub fn place(event: &Event) -> Option<u64> {
    (event.kind == Kind::Boundary as u8 && event.size != 0).then_some(event.size)
}

/// The same of a packed record.
#[inline(always)]
pub fn is_placed(record: &[u64; RECORD / 8]) -> bool {
    record[2] >> 56 == Kind::Boundary as u64 && place(&Event::unpack(*record)).is_some()
}

/// `context` of the copy that lies where the boundary belongs. Never in a file.
pub const PLACED: u8 = 2;

/// Puts a copy of every placed boundary where it lies. `events` are in sequence order; each stays where it stands too, so that
/// no number is missing.
pub fn put(events: &mut Vec<Event>) {
    let mut placed: Vec<(u64, Event)> = events.iter().filter_map(|e| Some((place(e)?, *e))).collect();
    if placed.is_empty() {
        return;
    }
    placed.sort_by_key(|p| p.0);
    let mut placed = placed.into_iter().peekable();
    let mut all = Vec::with_capacity(events.len() + placed.len());
    for event in events.iter() {
        while let Some((_, boundary)) = placed.next_if(|p| p.0 <= event.seq) {
            all.push(Event { context: PLACED, ..boundary });
        }
        all.push(*event);
    }
    *events = all;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_go_to_their_places() {
        let event = |seq, kind, size| Event { seq, size, ..Event::new(kind) };
        let mut events: Vec<Event> = (3..8).map(|seq| event(seq, Kind::Free, 0)).collect();
        events.extend([
            event(8, Kind::Boundary, 4),
            event(9, Kind::Boundary, 7),
            event(10, Kind::Boundary, 0),
            event(11, Kind::Boundary, 4),
        ]);
        put(&mut events);
        let order: Vec<u64> = events.iter().map(|e| e.seq).collect();
        assert_eq!(order, [3, 8, 11, 4, 5, 6, 9, 7, 8, 9, 10, 11]);
    }
}
