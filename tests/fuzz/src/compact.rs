//! Recordings from few bytes, for a fuzzer that is guided by coverage: lengths and sums come out right by themselves, so
//! that what it changes is what lies behind them.

use crate::recording_bytes::RecordingBytes;
use leaktrace_core::format::entry::TableEntry;
use leaktrace_core::format::event::RECORD;
use leaktrace_core::format::file_layout::{ROOM, header};

/// Segments made at most.
const MOST: usize = 12;

/// The input is a list of (form, length: 2 bytes, that many bytes): events (32 bytes each, the sequence number a step
/// from the one before), table entries, checkpoints, raw segments, words of the header.
pub fn expand(input: &[u8]) -> Vec<u8> {
    let mut recording = RecordingBytes::new();
    let (mut rest, mut seq) = (input, 0u64);
    while let [form, low, high, after @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
        let (body, next) = after.split_at(length);
        rest = next;
        if recording.segments() > MOST {
            break;
        }
        match form % 6 {
            0 | 1 => {
                let mut payload = body[..length / RECORD * RECORD].to_vec();
                for record in payload.chunks_exact_mut(RECORD) {
                    // Most events follow each other; some leave a gap.
                    let gap = if record[0] == 255 { u64::from(record[1]) } else { 0 };
                    seq += 1 + gap;
                    record[..8].copy_from_slice(&seq.to_le_bytes());
                }
                recording.events(&payload, form % 6 == 1);
            }
            2 => {
                let mut payload = Vec::new();
                let mut bodies = body;
                while let [length, after @ ..] = bodies {
                    let (one, next) = after.split_at(usize::from(*length).min(after.len()));
                    bodies = next;
                    // Raw bytes are entries now and then; where they are none, they are somebody's note.
                    if postcard::from_bytes::<TableEntry<'_>>(one).is_ok() {
                        RecordingBytes::entry(&mut payload, one);
                    } else if let Ok(note) =
                        postcard::to_stdvec(&TableEntry::Note { text: &String::from_utf8_lossy(one) })
                    {
                        RecordingBytes::entry(&mut payload, &note);
                    }
                }
                payload.truncate(ROOM);
                recording.tables(&payload);
            }
            3 => recording.checkpoint(body),
            4 => {
                recording.segment(u64::from(*low) % 5, &body[..length.min(ROOM)]);
            }
            _ => {
                for pair in body.chunks_exact(9).take(8) {
                    let at = header::VERSION + usize::from(pair[0]) % 8 * 8;
                    let word = pair[1..].try_into().map_or(0, u64::from_le_bytes);
                    // A header that says too much is refused at once: no use to get there often.
                    if at != header::SEGMENTS && at != header::VERSION {
                        recording.set(at, word);
                    }
                }
            }
        }
    }
    recording.bytes
}
