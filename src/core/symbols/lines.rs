//! From an offset in a code object to a line, by the line table CPython compiled for it. Pure; whatever the bytes are, it
//! answers or says that it cannot.

use crate::format::entry::LineTable;

/// Returns the line of the instruction at `offset` bytes. An empty table stands for one that was too large to keep: the line is then
/// the first of the function. `None`: an instruction without a line, or outside the table.
pub fn line(encoding: LineTable, first_line: i32, table: &[u8], offset: u32) -> Option<u32> {
    let first = i64::from(first_line);
    let offset = i64::from(offset);
    let line = if table.is_empty() {
        Some(first)
    } else {
        match encoding {
            LineTable::Lnotab => Some(lnotab(first, table, offset)),
            LineTable::Pairs => pairs(first, table, offset),
            LineTable::Locations => locations(first, table, offset),
        }
    };
    line.and_then(|line| u32::try_from(line).ok())
}

/// Reads `co_lnotab`: increments of address and line; the last line holds to the end.
fn lnotab(mut line: i64, table: &[u8], offset: i64) -> i64 {
    let mut address = 0;
    for pair in table.chunks_exact(2) {
        address += i64::from(pair[0]);
        if address > offset {
            break;
        }
        line += i64::from(pair[1].cast_signed());
    }
    line
}

/// Reads `co_linetable` of 3.10: ranges of bytes, each with its line relative to the one before; −128 is a range without
/// a line.
fn pairs(mut line: i64, table: &[u8], offset: i64) -> Option<i64> {
    let mut end = 0;
    for pair in table.chunks_exact(2) {
        let step = pair[1].cast_signed();
        if step != i8::MIN {
            line += i64::from(step);
        }
        end += i64::from(pair[0]);
        if offset < end {
            return (step != i8::MIN).then_some(line);
        }
    }
    None
}

/// Returns the offset of the first of the instructions that stand for the same place in the source as the one at `offset`, and lie
/// before it without a gap: a call by several instructions, or from behind the space that one has for its cache, is one place.
/// Where no columns are known, only the instruction that the offset lies in is.
pub fn first_of_place(encoding: LineTable, table: &[u8], offset: u32) -> u32 {
    if encoding != LineTable::Locations {
        return offset;
    }
    let mut before: Option<Location> = None;
    let (mut start, mut begin) = (0, 0);
    for location in Locations(table) {
        if !before.is_some_and(|before| before.is_followed_by(&location)) {
            start = begin;
        }
        begin += location.bytes;
        if offset < begin {
            return start;
        }
        before = Some(location);
    }
    offset
}

/// Reads `co_linetable` from 3.11 on.
fn locations(mut line: i64, table: &[u8], offset: i64) -> Option<i64> {
    let mut end = 0;
    for location in Locations(table) {
        line = line.saturating_add(location.lines);
        end += i64::from(location.bytes);
        if offset < end {
            return location.is_known.then_some(line);
        }
    }
    None
}

/// Entries of a head byte (1, form: 4 bits, units − 1: 3 bits) and the form's operands.
struct Locations<'t>(&'t [u8]);

struct Location {
    bytes: u32,
    is_known: bool,
    /// The step from the line of the one before.
    lines: i64,
    /// How many lines it spans, and its columns.
    columns: Option<[u64; 3]>,
}

impl Location {
    fn is_followed_by(&self, other: &Location) -> bool {
        other.lines == 0 && self.columns.is_some() && self.columns == other.columns
    }
}

impl Iterator for Locations<'_> {
    type Item = Location;

    fn next(&mut self) -> Option<Location> {
        let (&head, rest) = self.0.split_first()?;
        self.0 = rest;
        let byte = |rest: &mut &[u8]| {
            let (&byte, after) = rest.split_first()?;
            *rest = after;
            Some(u64::from(byte))
        };
        let form = head >> 3 & 15;
        let (lines, columns) = match form {
            // No location.
            15 => (0, None),
            // Line step, lines, column, end column.
            14 => {
                let lines = signed(&mut self.0)?;
                let columns = [varint(&mut self.0)?, varint(&mut self.0)?, varint(&mut self.0)?];
                // A column that is not known is 0, others are one more.
                (lines, (columns[1] != 0).then(|| [columns[0], columns[1] - 1, columns[2].saturating_sub(1)]))
            }
            // Line step only.
            13 => (signed(&mut self.0)?, None),
            // Zero to two lines on, two bytes of columns.
            10..=12 => (i64::from(form - 10), Some([0, byte(&mut self.0)?, byte(&mut self.0)?])),
            // Same line, one byte of columns: the column's lower three bits, and from it to the end.
            _ => {
                let columns = byte(&mut self.0)?;
                let begin = u64::from(form) << 3 | columns >> 4;
                (0, Some([0, begin, begin + (columns & 15)]))
            }
        };
        Some(Location { bytes: (u32::from(head & 7) + 1) * 2, is_known: form != 15, lines, columns })
    }
}

/// Reads an unsigned number: six bits a byte, least significant first; bit 6 says that more follow.
fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    let mut shift = 0;
    loop {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        if shift > 30 {
            return None;
        }
        value |= u64::from(byte & 63) << shift;
        shift += 6;
        if byte & 64 == 0 {
            return Some(value);
        }
    }
}

/// Reads a signed number, whose sign is in bit 0.
fn signed(rest: &mut &[u8]) -> Option<i64> {
    let value = varint(rest)?;
    let size = (value >> 1) as i64;
    Some(if value & 1 == 1 { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lnotab_counts_back_too_and_its_last_line_holds() {
        // 0..6 line 10, 6..8 line 12, from 8 line 9.
        let table = [6, 2, 2, 0xfd];
        let at = |offset| line(LineTable::Lnotab, 10, &table, offset);
        assert_eq!([at(0), at(5), at(6), at(8), at(4000)], [Some(10), Some(10), Some(12), Some(9), Some(9)]);
    }

    #[test]
    fn pairs_have_gaps_and_an_end() {
        let table = [4, 1, 2, 0x80, 2, 3];
        let at = |offset| line(LineTable::Pairs, 10, &table, offset);
        assert_eq!([at(0), at(4), at(6), at(8)], [Some(11), None, Some(14), None]);
    }

    #[test]
    fn locations_of_every_form() {
        // One line on (2 units), line step −3 (varint 7), none, long form with +70 (varint 140 = 12, 2), same line.
        let table = [
            0x80 | 11 << 3 | 1,
            0,
            0,
            0x80 | 13 << 3,
            7,
            0x80 | 15 << 3,
            0x80 | 14 << 3,
            0x40 | 12,
            2,
            0,
            1,
            1,
            0x80,
            5,
        ];
        let at = |offset| line(LineTable::Locations, 10, &table, offset);
        assert_eq!(
            [at(0), at(3), at(4), at(6), at(8), at(10)],
            [Some(11), Some(11), Some(8), None, Some(78), Some(78)]
        );
        assert_eq!(at(12), None);
    }

    #[test]
    fn a_place_is_all_instructions_in_a_row_of_one_location() {
        // Ten units in two entries at columns 4 to 9 of the line, in either form; two units of the same columns on the next line;
        // one without columns, twice; columns 4 to 9 again.
        let table = [
            0x80 | 7,
            0x45,
            0x80 | 10 << 3 | 1,
            4,
            9,
            0x80 | 11 << 3 | 1,
            4,
            9,
            0x80 | 13 << 3 | 1,
            0,
            0x80 | 13 << 3,
            0,
            0x80,
            0x45,
        ];
        let at = |offset| first_of_place(LineTable::Locations, &table, offset);
        assert_eq!([0, 15, 16, 19, 20, 23].map(at), [0, 0, 0, 0, 20, 20]);
        assert_eq!([24, 27, 28, 30].map(at), [24, 24, 28, 30]);
        assert_eq!([at(32), first_of_place(LineTable::Pairs, &table, 18)], [32, 18]);
    }

    #[test]
    fn an_empty_table_gives_the_first_line() {
        assert_eq!(line(LineTable::Locations, 7, &[], 400), Some(7));
        assert_eq!(line(LineTable::Pairs, -1, &[], 0), None);
    }

    #[test]
    fn garbage_is_survived() {
        let mut seed = 1u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as u32
        };
        for _ in 0..20_000 {
            let table: Vec<u8> = (0..next() % 40).map(|_| next() as u8).collect();
            for encoding in [LineTable::Lnotab, LineTable::Pairs, LineTable::Locations] {
                let offset = next() >> (next() % 32);
                line(encoding, next() as i32, &table, offset);
                assert!(first_of_place(encoding, &table, offset) <= offset);
            }
        }
    }
}
