//! Python's pickle format, protocol 2, as far as plain data goes, written as a stream. A value can be
//! referred to again, so that a million blocks share the stacks they have in common. Knows no recording.

use std::io::{self, Write};

/// An index into the reader's memo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memo(u32);

/// Writes one pickle.
pub struct Pickle<W: Write> {
    out: W,
    memos: u32,
}

impl<W: Write> Pickle<W> {
    pub fn new(mut out: W) -> io::Result<Pickle<W>> {
        out.write_all(b"\x80\x02")?;
        Ok(Pickle { out, memos: 0 })
    }

    /// Ends the pickle: the value written last is the whole.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.write_all(b".")?;
        self.out.flush()
    }

    pub fn int(&mut self, value: i64) -> io::Result<()> {
        if let Ok(small) = i32::try_from(value) {
            self.out.write_all(b"J")?;
            return self.out.write_all(&small.to_le_bytes());
        }
        self.out.write_all(b"\x8a\x08")?;
        self.out.write_all(&value.to_le_bytes())
    }

    /// Writes an unsigned number of 64 bits, such as an address.
    pub fn word(&mut self, value: u64) -> io::Result<()> {
        if let Ok(value) = i64::try_from(value) {
            return self.int(value);
        }
        self.out.write_all(b"\x8a\x09")?;
        self.out.write_all(&value.to_le_bytes())?;
        self.out.write_all(&[0])
    }

    pub fn text(&mut self, text: &str) -> io::Result<()> {
        let length = u32::try_from(text.len()).map_err(io::Error::other)?;
        self.out.write_all(b"X")?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(text.as_bytes())
    }

    pub fn bool(&mut self, value: bool) -> io::Result<()> {
        self.out.write_all(if value { b"\x88" } else { b"\x89" })
    }

    /// Opens a dictionary: pairs of key and value follow.
    pub fn dict(&mut self) -> io::Result<()> {
        self.out.write_all(b"}(")
    }

    pub fn end_dict(&mut self) -> io::Result<()> {
        self.out.write_all(b"u")
    }

    /// Opens a list: its items follow.
    pub fn list(&mut self) -> io::Result<()> {
        self.out.write_all(b"](")
    }

    pub fn end_list(&mut self) -> io::Result<()> {
        self.out.write_all(b"e")
    }

    /// Makes a tuple of the two values written last.
    pub fn pair(&mut self) -> io::Result<()> {
        self.out.write_all(b"\x86")
    }

    /// Remembers the value written last.
    pub fn remember(&mut self) -> io::Result<Memo> {
        let memo = Memo(self.memos);
        self.memos += 1;
        self.out.write_all(b"r")?;
        self.out.write_all(&memo.0.to_le_bytes())?;
        Ok(memo)
    }

    /// Writes a remembered value once more.
    pub fn again(&mut self, memo: Memo) -> io::Result<()> {
        self.out.write_all(b"j")?;
        self.out.write_all(&memo.0.to_le_bytes())
    }
}
