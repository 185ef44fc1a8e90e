//! Unwind rules: how to get from a frame to its caller, one word per return address, in one table for all
//! threads.
//!
//! ```text
//!         63                     33 32        18 17         2 1   0
//!  entry │ tag                     │ rbp (i15)  │ cfa (16)   │ kind │
//! ```
//!
//! Multiplying a 47-bit address by an odd number modulo 2⁴⁷ is a bijection; its upper 16 bits are the slot in
//! the table, the other 31 the tag. So a slot and its tag mean exactly one address, and a single load finds a
//! whole rule or none: no lock, nothing torn. A rule that another one has displaced is read from the unwind
//! tables again.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::unwind::tables;

/// A rule: 33 bits, never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule(u64);

/// What a frame's canonical address (CFA: the stack pointer before the call) is computed from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `CFA = rsp + 8·cfa`; `rbp = *(CFA + 8·rbp)`, or unchanged if that offset is 0.
    Rsp,
    /// `CFA = rbp + 8·cfa`; rbp as for [`Kind::Rsp`].
    Rbp,
    /// `CFA = *(rbp + 8·cfa)`, `rbp = *(rbp + 8·rbp)`: a function that aligns its stack.
    Saved,
    /// One of the constants of [`Rule`].
    Special,
}

const RULE: u64 = (1 << 33) - 1;
const SPECIAL: u64 = 3;

impl Rule {
    /// The outermost frame.
    pub const END: Rule = Rule::special(1);
    /// No table has an entry for this address.
    pub const NO_CFI: Rule = Rule::special(2);
    /// The trampoline that a signal handler returns to: the kernel left the interrupted registers on the
    /// stack.
    pub const SIGNAL: Rule = Rule::special(3);
    /// The tables say more than a rule can express.
    pub const OTHER: Rule = Rule::special(4);

    const fn special(n: u64) -> Rule {
        Rule(n << 2 | SPECIAL)
    }

    /// Makes the rule of a kind and its two offsets in bytes; `None` if they are too large or no multiples of
    /// 8.
    pub fn new(kind: Kind, cfa: i64, rbp: i64) -> Option<Rule> {
        if cfa % 8 != 0 || rbp % 8 != 0 {
            return None;
        }
        let (cfa, rbp) = (i16::try_from(cfa / 8).ok()?, i16::try_from(rbp / 8).ok()?);
        if !(-(1 << 14)..1 << 14).contains(&rbp) {
            return None;
        }
        let kind = match kind {
            Kind::Rsp => 0,
            Kind::Rbp => 1,
            Kind::Saved => 2,
            Kind::Special => return None,
        };
        // No function has a CFA equal to its rsp: 0 stays free for an empty slot.
        let word = kind | u64::from(cfa as u16) << 2 | (rbp as u64 & 0x7fff) << 18;
        (word != 0).then_some(Rule(word))
    }

    #[inline(always)]
    pub const fn kind(self) -> Kind {
        match self.0 & 3 {
            0 => Kind::Rsp,
            1 => Kind::Rbp,
            2 => Kind::Saved,
            _ => Kind::Special,
        }
    }

    /// The offset of the CFA in bytes, to be added.
    #[inline(always)]
    pub const fn cfa(self) -> u64 {
        ((self.0 >> 2) as i16 as i64 * 8) as u64
    }

    /// The offset of the saved rbp in bytes, to be added.
    #[inline(always)]
    pub const fn rbp(self) -> u64 {
        (((self.0 << (64 - 33)) as i64 >> (64 - 15)) * 8) as u64
    }
}

const SLOTS: usize = 1 << 16;
const ADDRESS_BITS: u32 = 47;
const TAG_BITS: u32 = 31;
const SPREAD: u64 = 0x5851_f42d_4c95_7f2d;

static RULES: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];
/// Counts how often all rules were forgotten; from 1.
static EPOCH: AtomicU64 = AtomicU64::new(1);

#[inline(always)]
const fn slot(address: u64) -> (usize, u64) {
    let spread = address.wrapping_mul(SPREAD) & ((1 << ADDRESS_BITS) - 1);
    ((spread >> TAG_BITS) as usize, spread & ((1 << TAG_BITS) - 1))
}

/// Returns the rule of an instruction; `None` if it lies in no module that the loader knows.
#[inline(always)]
pub fn of(address: u64) -> Option<Rule> {
    let (slot, tag) = slot(address);
    let entry = RULES[slot].load(Ordering::Relaxed);
    if entry >> 33 == tag && entry & RULE != 0 && address >> ADDRESS_BITS == 0 {
        return Some(Rule(entry & RULE));
    }
    read(address)
}

#[cold]
#[inline(never)]
fn read(address: u64) -> Option<Rule> {
    if address >> ADDRESS_BITS != 0 {
        return None;
    }
    let rule = tables::rule(address)?;
    let (slot, tag) = slot(address);
    RULES[slot].store(tag << 33 | rule.0, Ordering::Relaxed);
    Some(rule)
}

/// Returns the epoch of the table: rules of an earlier one are void.
#[inline(always)]
pub fn epoch() -> u64 {
    // Acquire: whoever sees the new epoch also sees the table emptied.
    EPOCH.load(Ordering::Acquire)
}

/// Forgets all rules, since other code may come to lie at an address. No thread is inside an unloaded module,
/// so nobody is about to store a rule of it.
pub fn forget() {
    for slot in &RULES {
        // Only slots in use are written: the rest of the table stays unmapped.
        if slot.load(Ordering::Relaxed) != 0 {
            slot.store(0, Ordering::Relaxed);
        }
    }
    EPOCH.fetch_add(1, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_keeps_kind_and_offsets() {
        for kind in [Kind::Rsp, Kind::Rbp, Kind::Saved] {
            for cfa in [-32768, -1, 1, 2, 32767] {
                for rbp in [-16384, -2, 0, 3, 16383] {
                    let rule = Rule::new(kind, cfa * 8, rbp * 8).unwrap();
                    assert_eq!((rule.kind(), rule.cfa() as i64, rule.rbp() as i64), (kind, cfa * 8, rbp * 8));
                    assert_eq!(rule.0 & !RULE, 0);
                }
            }
            assert_eq!(Rule::new(kind, 32768 * 8, 0), None);
            assert_eq!(Rule::new(kind, 8, 16384 * 8), None);
            assert_eq!(Rule::new(kind, 12, 0), None);
        }
        for special in [Rule::END, Rule::NO_CFI, Rule::SIGNAL, Rule::OTHER] {
            assert_eq!(special.kind(), Kind::Special);
        }
    }

    #[test]
    fn slot_and_tag_mean_one_address() {
        // The inverse of the multiplication, by Newton's iteration.
        let mut inverse = SPREAD;
        for _ in 0..6 {
            inverse = inverse.wrapping_mul(2u64.wrapping_sub(SPREAD.wrapping_mul(inverse)));
        }
        for address in [1, 0x40_1000, 0x5555_5555_4000, 0x7fff_f7a0_1234, (1 << 47) - 1] {
            let (slot, tag) = slot(address);
            let spread = (slot as u64) << TAG_BITS | tag;
            assert_eq!(spread.wrapping_mul(inverse) & ((1 << 47) - 1), address);
        }
    }
}
