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

/// Reads `co_linetable` from 3.11 on: entries of a head byte (1, form: 4 bits, units − 1: 3 bits) and the form's operands.
fn locations(mut line: i64, table: &[u8], offset: i64) -> Option<i64> {
    let mut rest = table;
    let mut end = 0;
    while let Some((&head, after)) = rest.split_first() {
        rest = after;
        end += (i64::from(head & 7) + 1) * 2;
        let form = head >> 3 & 15;
        let columns = match form {
            // No location.
            15 => 0,
            // Line step, end line, column, end column.
            14 => {
                line = line.saturating_add(signed(&mut rest)?);
                for _ in 0..3 {
                    varint(&mut rest)?;
                }
                0
            }
            // Line step only.
            13 => {
                line = line.saturating_add(signed(&mut rest)?);
                0
            }
            // Zero to two lines on, two bytes of columns.
            10..=12 => {
                line = line.saturating_add(i64::from(form - 10));
                2
            }
            // Same line, one byte of columns.
            _ => 1,
        };
        rest = rest.get(columns..)?;
        if offset < end {
            return (form != 15).then_some(line);
        }
    }
    None
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
                line(encoding, next() as i32, &table, next() >> (next() % 32));
            }
        }
    }
}
